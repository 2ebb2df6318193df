"""Which older outputs are masked, and what replaces them."""

from hypothesis import given
from hypothesis import strategies as st

from interlock.nodes.turn_messages import estimate_freed_tokens, mask_output, maskable_output_indices
from interlock.state.messages import Message, ToolCall, unanswered_calls
from interlock.state.text import estimate_tokens


def exchange(number: int, text: str, tool: str = "read_file") -> list[Message]:
    call = ToolCall(id=f"{number}.0", name=tool, args={})
    return [
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", tool_call_id=call.id, name=tool, content=text, status="success"),
    ]


def conversation(*outputs: str, tool: str = "read_file") -> list[Message]:
    start = [Message(role="system", content="s"), Message(role="user", content="go")]
    return [*start, *(m for i, text in enumerate(outputs) for m in exchange(i, text, tool))]


K20 = "x" * 80_000
"""20,000 tokens."""


def test_what_crosses_the_line_is_older() -> None:
    messages = conversation(K20, K20, K20, K20, K20)
    assert maskable_output_indices(messages) == [3, 5, 7], (
        "two of the newest are 40,000 tokens, the third crosses 50,000"
    )
    assert 59_000 < estimate_freed_tokens(messages, [3, 5, 7]) < 60_000


def test_an_output_that_nobody_has_seen_stays_however_large() -> None:
    calls = tuple(ToolCall(id=f"b.{i}", name="t", args={}) for i in range(4))
    batch = [Message(role="tool", tool_call_id=c.id, name="t", content=K20) for c in calls]
    messages = [*conversation(K20), Message(role="assistant", tool_calls=calls), *batch]
    assert maskable_output_indices(messages) == [3]


def test_answers_of_people_the_list_of_steps_and_masked_outputs_stay() -> None:
    for tool in ("ask_user", "write_todos", "exit_plan_mode"):
        assert maskable_output_indices(conversation(K20, K20, K20, K20, tool=tool)) == []
    messages = conversation(K20, K20, K20, K20, K20)
    for index in maskable_output_indices(messages):
        messages[index] = mask_output(messages[index], "/o/a.txt")
    assert maskable_output_indices(messages) == []


def test_a_masked_output_names_its_file_and_shows_both_ends_of_a_command_in_lines_and_how_it_ended() -> None:
    def shown(text: str, tool: str = "read_file") -> str:
        return mask_output(exchange(0, text, tool)[1], "/o/a.txt").text

    text = shown("BEGIN" + "x" * 100_000 + "END")
    assert "/o/a.txt" in text and "BEGIN" in text and "END" in text and len(text) < 1000
    lines = [f"line {i}" for i in range(5000)]
    text = shown("\n".join([*lines, "Exit Code: 3"]), "run_shell_command")
    assert "line 9\n" in text and "line 10\n" not in text
    assert "line 4991\n" in text and "Exit Code: 3" in text
    assert len(shown("y" * 1_000_000, "run_shell_command")) < 1000


@given(st.lists(st.integers(0, 60_000), max_size=12))
def test_masking_keeps_every_answer_in_its_place(sizes: list[int]) -> None:
    messages = conversation(*("x" * 4 * size for size in sizes))
    indices = maskable_output_indices(messages)
    after = [mask_output(m, "/o/a.txt") if i in indices else m for i, m in enumerate(messages)]
    assert unanswered_calls(after) == []
    assert [(m.role, m.tool_call_id, m.name, m.status) for m in after] == [
        (m.role, m.tool_call_id, m.name, m.status) for m in messages
    ]
    whole = [i for i, m in enumerate(messages) if m.role == "tool" and i not in indices]
    assert sum(estimate_tokens(messages[i].text) for i in whole[:-1] if i > max(indices, default=0)) <= 50_000
    assert all(i < max((j for j in whole), default=10**9) for i in indices), "the newest stays"
    assert estimate_tokens("".join(m.text for m in after)) <= estimate_tokens(
        "".join(m.text for m in messages)
    )
