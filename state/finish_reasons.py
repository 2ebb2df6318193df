"""finish_reasons: what each provider calls the end of an answer, and what it means."""

from typing import Literal

End = Literal["complete", "length", "on", "blocked", "overflow", "retry"]
"""`on`: the model paused and goes on when it is asked again; `overflow`: the request filled its context window."""

ENDS: dict[str, End] = {
    # OpenAI's chat completions and those who speak like it, Ollama, Gemini
    **dict.fromkeys(("stop", "tool_calls", "function_call", "eos", "done"), "complete"),
    **dict.fromkeys(("length", "model_length"), "length"),
    "content_filter": "blocked",
    # Anthropic, Bedrock
    **dict.fromkeys(("end_turn", "stop_sequence", "tool_use"), "complete"),
    "max_tokens": "length",
    "pause_turn": "on",
    "model_context_window_exceeded": "overflow",
    **dict.fromkeys(("refusal", "guardrail_intervened", "content_filtered"), "blocked"),
    **dict.fromkeys(("malformed_model_output", "malformed_tool_use"), "retry"),
    # OpenAI Responses: a status, or the reason of `incomplete_details`
    "completed": "complete",
    "max_output_tokens": "length",
    # Gemini
    **dict.fromkeys(
        ("safety", "recitation", "blocklist", "prohibited_content", "spii", "image_safety", "prompt_blocked"),
        "blocked",
    ),
    **dict.fromkeys(("malformed_function_call", "unexpected_tool_call", "error"), "retry"),
}
"""In lower case. An end that isn't here, of a stream that closed properly, is an answer, with a warning."""

BLOCKED = frozenset(name for name, end in ENDS.items() if end == "blocked")
"""Ends that a retry doesn't change."""
