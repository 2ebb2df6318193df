"""script: chooses the reply to a request."""

import json
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from fake_gemini.history import answers, texts

Json = Mapping[str, Any]
_FLAGS = re.DOTALL | re.IGNORECASE


def facts(body: Json, model: str) -> dict[str, Any]:
    """What rules match on."""
    contents: Sequence[Json] = body.get("contents", [])
    asked = [i for i, c in enumerate(contents) if c.get("role", "user") == "user" and texts(c)]
    since = contents[asked[-1] + 1 :] if asked else contents
    last = contents[-1] if contents else {}
    config = body.get("generationConfig", {})
    declared = [f["name"] for t in body.get("tools", []) for f in t.get("functionDeclarations", [])]
    return {
        "model": model,
        "system": texts(body.get("systemInstruction", {})),
        "first_user": texts(contents[asked[0]]) if asked else "",
        "last_user": texts(contents[asked[-1]]) if asked else "",
        "tool_result": json.dumps(answers(last), ensure_ascii=False) if answers(last) else "",
        "tools": ",".join(declared),
        "schema": json.dumps(config["responseJsonSchema"]) if "responseJsonSchema" in config else "",
        "model_turns": sum(c.get("role") == "model" for c in contents),
        "since_user": sum(c.get("role") == "model" for c in since),
    }


class Script:
    """Replies in order, rules before them. Thread-safe."""

    def __init__(self, script: Json | Sequence[Any] = ()) -> None:
        self._lock = threading.Lock()
        self.options: Json = script if isinstance(script, Mapping) else {"replies": list(script)}
        self._next = 0
        self._used: dict[int, int] = {}

    def choose(self, found: Json, body: Json) -> dict[str, Any] | None:
        """The reply; None: the script is used up."""
        with self._lock:
            reply = self._by_rule(found, body)
            if reply is None:
                replies = self.options.get("replies", [])
                reply = replies[self._next] if self._next < len(replies) else self.options.get("default")
                self._next += 1
        return {"text": reply} if isinstance(reply, str) else reply

    def _by_rule(self, found: Json, body: Json) -> Any:
        for number, rule in enumerate(self.options.get("rules", [])):
            if not all(self._holds(key, want, found, body) for key, want in rule.get("match", {}).items()):
                continue
            replies = rule["replies"] if "replies" in rule else [rule["reply"]]
            used = self._used.get(number, 0)
            if used >= rule.get("times", 10**9):
                continue
            by = rule.get("by", "order")
            at = used if by == "order" else found[by]
            if by == "order" and "reply" in rule:
                at = 0
            if at < len(replies):
                self._used[number] = used + 1
                return replies[at]
        return None

    def _holds(self, key: str, want: Any, found: Json, body: Json) -> bool:
        have = json.dumps(body, ensure_ascii=False) if key == "body" else found[key]
        return have == want if isinstance(want, int) else re.search(want, str(have), _FLAGS) is not None
