"""redaction: keeps secrets out of what a run tells, sends to a model and stores.

Redacted is what has a known shape (`secret_shapes`), and each secret of the run's environment (`secret_variables`)
word for word. In its place stands `[redacted:NAME or KIND]`.

| Place | Treatment |
|---|---|
| the chain: prompts, memory files, answers, thoughts, results | redacted as a record is made (`transcript.append`) |
| arguments of calls, in the chain, the journal and approvals | verbatim: they are what runs; shown redacted |
| results of calls, in the journal | redacted before the row is written (`journal.finish`) |
| diffs of planned changes, previews and reasons of approvals | redacted before the row is written |
| requests to models, errors of providers | redacted (`services/models/chat`) |
| output of processes: shown, returned, kept in `outputs/` | redacted as it comes, also across pieces |
| output of background commands, in `outputs/spool-*` | raw while they run, redacted when the run lets them go |
| events, whatever they hold | redacted again, also across deltas: the last door (`engine/redacted_events`) |
| a run's title, options and error; pending requests; warnings; tracebacks | redacted |
| `--record-responses` | texts redacted; calls verbatim, for they are played back |
| files that tools write, plans among them | as written, but never a mark in place of a secret (`marks_in`) |
| a person's answer; arguments in `approvals` and `show` | verbatim: what is approved is what runs |
| what hooks say | redacted; arguments that they change verbatim |
| Output of `edit`; calls in the Output of `turn` | verbatim: to hand it back is what they are for |
| images and other data | untouched |
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from interlock.services.secret_shapes import Span, shapes_in

if TYPE_CHECKING:  # errors of the fast commands are redacted too, without pydantic
    from interlock.state.calls import ApprovalRequest, Planned, ToolResult
    from interlock.state.messages import Message

_MARK = re.compile(r"\[redacted:[\w.-]{1,64}\]")
_SHORTEST = 8
"""Characters from which a value of the environment is looked for: shorter ones stand in too many other words."""
_PASSES = 4


class Redactor:
    """Redacts texts. `secrets`: name → value, of the environment; `enabled` false: nothing is changed."""

    def __init__(self, secrets: Mapping[str, str] | None = None, *, enabled: bool = True) -> None:
        self.enabled = enabled
        self.literals = _literals(secrets or {}) if enabled else {}
        """What is looked for word for word → what to call it; the longest first."""

    def __call__(self, text: str) -> str:
        """The text with a mark for each secret; the same text, where there is none."""
        for _ in range(_PASSES):  # a mark can lay bare what stood right beside a secret
            spans = self.spans(text)
            if not spans:
                break
            text = _marked(text, spans)
        return text

    def spans(self, text: str) -> list[Span]:
        """Secrets of the text, by place."""
        if not self.enabled:
            return []
        found = [*shapes_in(text)] if len(text) >= _SHORTEST else []
        for value, name in self.literals.items():
            at = text.find(value)
            while at >= 0:
                found.append(Span(at, at + len(value), name))
                at = text.find(value, at + len(value))
        return sorted(found)

    def json(self, value: Any) -> Any:
        """Every string in a JSON-like value; keys stay."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, Mapping):
            return {key: self.json(item) for key, item in cast(Mapping[Any, Any], value).items()}
        if isinstance(value, list | tuple):
            return [self.json(item) for item in cast(list[Any], value)]
        return value

    def message(self, message: "Message") -> "Message":
        """A record's texts; the very same record, where nothing is secret."""
        changes: dict[str, Any] = {}
        if isinstance(message.content, str):
            content: Any = self(message.content)
        else:
            content = tuple(
                p.model_copy(update={"text": self(p.text)}) if p.type == "text" else p
                for p in message.content
            )
        if content != message.content:
            changes["content"] = content
        if message.thought and (thought := self(message.thought)) != message.thought:
            changes["thought"] = thought
        return message.model_copy(update=changes) if changes else message

    def result(self, result: "ToolResult") -> "ToolResult":
        """Everything that a result says, to the model and to people."""
        changes = {
            "content": self(result.content),
            "error": self.json(result.error),
            "meta": self.json(result.meta),
            "stop": self(result.stop) if result.stop else result.stop,
        }
        return result.model_copy(update=changes)

    def planned(self, planned: "Planned") -> "Planned":
        """What people and the model are told of a change; its place and hashes stay."""
        changes = {"message": self(planned.message), "diff": self(planned.diff)}
        return planned.model_copy(update=changes)

    def request(self, request: "ApprovalRequest") -> "ApprovalRequest":
        """What a person is shown; the arguments stay as they are, for they are what runs."""
        always = {choice: self(covers) for choice, covers in request.always.items()}
        changes = {"reason": self(request.reason), "preview": self(request.preview), "always": always}
        return request.model_copy(update=changes)

    def for_bytes(self) -> "Redactor":
        """For bytes that were decoded as Latin-1, one character each."""
        made = Redactor(enabled=self.enabled)
        made.literals = {
            value.encode(errors="replace").decode("latin-1"): n for value, n in self.literals.items()
        }
        return made


def marks_in(text: str) -> Counter[str]:
    """The marks that stand in a text, each with how often."""
    return Counter(_MARK.findall(text))


def new_mark(before: bytes, after: bytes) -> str | None:
    """A mark that a file would get: copied from what the model was shown where a secret stands."""
    new = marks_in(after.decode("latin-1")) - marks_in(before.decode("latin-1"))
    return next(iter(new), None)


def _marked(text: str, spans: list[Span]) -> str:
    """Each run of overlapping spans becomes one mark, of the first."""
    parts: list[str] = []
    done = 0
    for start, end, name in spans:
        if start >= done:
            parts += [text[done:start], f"[redacted:{name}]"]
        done = max(done, end)
    return "".join([*parts, text[done:]])


def _literals(secrets: Mapping[str, str]) -> dict[str, str]:
    """Values as they stand in texts, in JSON and in URLs. None may be a part of a mark."""
    found: dict[str, str] = {}
    for name, value in secrets.items():
        called = re.sub(r"[^\w.-]", "_", name)[:64]
        forms = (
            value,
            json.dumps(value)[1:-1],
            json.dumps(value, ensure_ascii=False)[1:-1],
            quote(value, safe=""),
        )
        found |= {form: called for form in forms if len(value) >= _SHORTEST and form not in found}
    marks = " ".join(f"[redacted:{name}]" for name in found.values())
    return {v: found[v] for v in sorted(found, key=lambda v: (-len(v), v)) if v not in marks}


SHAPES = Redactor()
"""Knows no environment: shapes alone."""
