"""response: a scripted reply as the response objects that Gemini streams."""

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]
TOKEN_CHARS = 4


def tokens(text: str) -> int:
    return -(-len(text) // TOKEN_CHARS)


def signature(seed: str) -> str:
    """A base64 signature, the same for the same seed."""
    return base64.b64encode(b"sig:" + hashlib.sha256(seed.encode()).digest()[:18]).decode()


def responses(reply: Mapping[str, Any], model: str, prompt_chars: int, number: int) -> list[Json]:
    """One object per chunk."""
    if "raw" in reply:
        return reply["raw"] if isinstance(reply["raw"], list) else [reply["raw"]]
    if reply.get("empty"):
        return []
    frame: Json = {"modelVersion": model, "responseId": f"resp-{number}"}
    prompt = -(-prompt_chars // TOKEN_CHARS)
    if "block" in reply:
        usage = {"promptTokenCount": prompt, "totalTokenCount": prompt}
        return [{"promptFeedback": {"blockReason": reply["block"]}, "usageMetadata": usage, **frame}]
    groups = _groups(reply, number) or [[]]
    out = [{"candidates": [_candidate(parts)], "usageMetadata": _usage(prompt), **frame} for parts in groups]
    finish = reply.get("finish", "STOP")
    if finish is not None:
        out[-1]["candidates"][0]["finishReason"] = finish
    out[-1]["usageMetadata"] = _usage(prompt, reply)
    return out


def shortened(reply: Mapping[str, Any], most: int | None) -> Mapping[str, Any]:
    """The reply as `maxOutputTokens` leaves it: a text that is longer ends there."""
    text = reply.get("text", "")
    if most is None or not isinstance(text, str) or tokens(text) <= most:
        return reply
    return {**reply, "text": text[: most * TOKEN_CHARS], "finish": "MAX_TOKENS"}


def merged(chunks: list[Json]) -> Json:
    """The chunks merged into one, as `generateContent` returns it."""
    if not chunks:
        return {}
    parts = [
        p for c in chunks for k in c.get("candidates", []) for p in k.get("content", {}).get("parts", [])
    ]
    whole = dict(chunks[-1])
    if whole.get("candidates") and parts:
        whole["candidates"] = [{**whole["candidates"][0], "content": {"role": "model", "parts": parts}}]
    return whole


def _candidate(parts: list[Json]) -> Json:
    return {"index": 0, "content": {"role": "model", **({"parts": parts} if parts else {})}}


def _groups(reply: Mapping[str, Any], number: int) -> list[list[Json]]:
    """The parts of each chunk: thought, text pieces, calls."""
    groups: list[list[Json]] = []
    if reply.get("thought"):
        groups.append([{"text": reply["thought"], "thought": True}])
    groups += [[{"text": piece}] for piece in _pieces(reply)]
    if reply.get("signature") and not reply.get("calls"):
        if not groups or groups[-1][0].get("thought"):
            groups.append([{"text": ""}])
        groups[-1][-1]["thoughtSignature"] = reply["signature"]
    if reply.get("calls"):
        groups.append([_call(call, index, number) for index, call in enumerate(reply["calls"])])
    return groups


def _pieces(reply: Mapping[str, Any]) -> list[str]:
    text = reply.get("text", "")
    if isinstance(text, list):
        return text
    size = -(-len(text) // int(reply.get("chunks", 1)))
    return [text[i : i + size] for i in range(0, len(text), size)] if size else []


def _call(call: Mapping[str, Any], index: int, number: int) -> Json:
    body: Json = {"name": call["name"], "args": call.get("args", {})}
    if "id" in call:
        body["id"] = call["id"]
    part: Json = {"functionCall": body}
    signed = call.get("signature", signature(f"{number}.{index}") if index == 0 else None)
    return {**part, "thoughtSignature": signed} if signed else part


def _usage(prompt: int, reply: Mapping[str, Any] | None = None) -> Json:
    if reply is None:
        return {"promptTokenCount": prompt, "totalTokenCount": prompt}
    said, thought = (
        tokens("".join(_pieces(reply)) + repr(reply.get("calls", ""))),
        tokens(reply.get("thought", "")),
    )
    usage = {
        "promptTokenCount": prompt,
        "candidatesTokenCount": said,
        "totalTokenCount": prompt + said + thought,
        **({"thoughtsTokenCount": thought} if thought else {}),
    }
    return {**usage, **reply.get("usage", {})}
