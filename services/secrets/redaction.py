"""redaction: keeps secrets out of what a run displays, sends to a model and stores.

Redacted are known shapes (`find_secret_shapes`) and, verbatim, each secret of the run's environment
(`secret_variables`). `[redacted:NAME or KIND]` replaces them. In streams, secrets are found wherever they are split.

| Place | Treatment |
|---|---|
| the chain: prompts, memory files, answers, thoughts, results | redacted as a record is created (`transcript.append`) |
| arguments of calls, in the chain, the journal and approvals | verbatim, as they get executed; displayed redacted |
| results of calls, in the journal; diffs, previews and reasons of approvals | redacted before the row is written |
| requests to models, errors of providers | redacted (`services/models/chat`) |
| output of processes: shown, returned, stored in `outputs/`; files in the search index | redacted as it arrives |
| output of background commands, in `outputs/spool-*` | raw while they run, redacted when the run releases them |
| events, whatever they contain | redacted again, also across deltas: the last gate (`engine/driver/event_bus`) |
| a run's title, options and error; pending requests; warnings; tracebacks | redacted |
| `--record-responses` | texts redacted; calls verbatim, as they are replayed |
| files that tools write, including plans | as written, but never a mark in place of a secret (`marks_in`) |
| a person's answer; arguments in `approvals` and `show` | verbatim: what is approved gets executed |
| replies of hooks | redacted; arguments that they change verbatim |
| Output of `edit`; calls in the Output of `turn` | verbatim: returning them is their purpose |
| images and other data | untouched |
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import quote

LONGEST = 16_000
"""Maximum characters of a match: a private key."""
_SEPARATOR = r"(?:\s|\\[nr])"
_compiled = cache(re.compile)
_Check = Callable[[re.Match[str]], bool]
_PLACEHOLDER = re.compile(r"[\[{$<%*]|(?:password|passwd|pass|pwd)$|[xX.*]+$|\d{1,5}[,;)\]|]|\d{1,5}$")
"""Placeholders for a URL's password: a variable, a word for it, a port."""


class Span(NamedTuple):
    """One secret in a text: its start, end (exclusive) and name."""

    start: int
    end: int
    name: str


class Shape(NamedTuple):
    """A shape of secrets. `regex` begins with the text `start`; its group 1, if any, is the secret."""

    kind: str
    start: str
    regex: str
    harmless: _Check = lambda _: False

    @property
    def pattern(self) -> re.Pattern[str]:
        """Compiled once a text has `start`: compiling all takes a tenth of what a list does."""
        return _compiled(self.regex)


def _token_shape(
    kind: str, start: str, rest: str, before: str = "A-Za-z0-9", after: str = "A-Za-z0-9_"
) -> Shape:
    """Return the shape of a token that isn't part of a longer word."""
    head = re.escape(start)
    return Shape(kind, start, rf"{head}(?<![{before}]{head}){rest}(?![{after}])")


def _is_placeholder_password(found: re.Match[str]) -> bool:
    return _PLACEHOLDER.match(found[1]) is not None or found[0].startswith(f"://{found[1]}:")


def _is_word_without_digits(found: re.Match[str]) -> bool:
    """Return whether it is a placeholder such as `Bearer YOUR_TOKEN_GOES_HERE`."""
    return not any(char.isdigit() for char in found[1])


def _keyword_value_shape(kind: str, keyword: str, rest: str, harmless: _Check = lambda _: False) -> Shape:
    """Return the shape of a value that follows a keyword on the same line."""
    return Shape(kind, keyword, keyword + r"[\"']?[ \t]{0,4}[:=]>?[ \t]{0,4}[\"']?" + rest, harmless)


_BEARER = r"(?:[Bb]earer|[Bb]asic|[Tt]oken)[ \t]{1,4}([A-Za-z0-9._~+/=-]{16,2048})"
_AWS_SECRET = r"([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])"
_PEM = (
    r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
    rf"(?:{_SEPARATOR}{{1,8}}[A-Za-z-]{{1,20}}: [^\r\n\\]{{0,200}}){{0,4}}"
    rf"{_SEPARATOR}{{1,8}}[A-Za-z0-9+/=]{{32,6000}}"
    rf"(?:{_SEPARATOR}{{1,8}}[A-Za-z0-9+/=]{{16,76}}){{0,100}}"
    rf"(?:(?:{_SEPARATOR}{{1,8}}[A-Za-z0-9+/=]{{1,76}}){{0,2}}{_SEPARATOR}{{0,8}}-----END [A-Z0-9 ]{{1,60}}-----)?"
)
_SLACK = ("xoxa", "xoxb", "xoxe", "xoxo", "xoxp", "xoxr", "xoxs")
IN_A_WORD = (
    *(
        _token_shape("aws-key-id", p, "[A-Z2-7]{16}", after="A-Za-z0-9")
        for p in ("AKIA", "ASIA", "ABIA", "ACCA")
    ),
    _token_shape("aws-session-token", "IQoJb3JpZ2lu", "[A-Za-z0-9/+=]{80,2048}"),
    *(_token_shape("github-token", f"gh{c}_", "[A-Za-z0-9]{36,255}") for c in "pousr"),
    _token_shape("github-token", "github_pat_", "[A-Za-z0-9_]{36,255}"),
    _token_shape("gitlab-token", "glpat-", "[A-Za-z0-9_-]{20,64}", after="A-Za-z0-9_-"),
    _token_shape("google-key", "AIza", "[A-Za-z0-9_-]{35}", after="A-Za-z0-9_-"),
    _token_shape("google-token", "ya29.", "[A-Za-z0-9_-]{20,1024}"),
    _token_shape("google-secret", "GOCSPX-", "[A-Za-z0-9_-]{28}", after="A-Za-z0-9_-"),
    *(_token_shape("slack-token", f"{p}-", "[A-Za-z0-9-]{10,250}") for p in _SLACK),
    _token_shape("slack-token", "xapp-", "[0-9]-[A-Za-z0-9-]{10,250}"),
    Shape("slack-webhook", "hooks.slack.com/", r"hooks\.slack\.com/(services/T\w{6,20}/B\w{6,20}/\w{16,40})"),
    *(
        _token_shape("stripe-key", f"{p}_{m}_", "[A-Za-z0-9]{16,247}")
        for p in ("sk", "rk")
        for m in ("live", "test")
    ),
    _token_shape("stripe-secret", "whsec_", "[A-Za-z0-9+/=]{32,88}"),
    *(_token_shape("openai-key", f"sk-{p}-", "[A-Za-z0-9_-]{20,250}") for p in ("proj", "svcacct", "admin")),
    _token_shape("anthropic-key", "sk-ant-", "[A-Za-z0-9_-]{20,250}"),
    _token_shape("openrouter-key", "sk-or-", "[A-Za-z0-9_-]{32,100}"),
    _token_shape("openai-key", "sk-", "[A-Za-z0-9]{32,100}"),
    _token_shape("groq-key", "gsk_", "[A-Za-z0-9]{40,64}"),
    _token_shape("xai-key", "xai-", "[A-Za-z0-9]{64,100}"),
    _token_shape("huggingface-token", "hf_", "[A-Za-z0-9]{30,60}"),
    _token_shape("npm-token", "npm_", "[A-Za-z0-9]{36}"),
    _token_shape("pypi-token", "pypi-AgE", "[A-Za-z0-9_-]{50,500}"),
    _token_shape("sendgrid-key", "SG.", r"[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
    _token_shape("digitalocean-token", "dop_v1_", "[a-f0-9]{64}"),
    _token_shape("databricks-token", "dapi", "[a-f0-9]{32}"),
    _token_shape("azure-key", "AccountKey=", "([A-Za-z0-9+/]{86}==)"),
    _token_shape("jwt", "eyJ", r"[\w-]{8,2048}+\.eyJ[\w-]{8,4096}+\.[\w-]{10,2048}", before="A-Za-z0-9_-"),
    Shape(
        "url-password", "://", r"://[^\s/:@?#\"'<>]{0,256}+:([^\s/@\"'<>]{1,256}+)@", _is_placeholder_password
    ),
)
"""Shapes without blanks."""
AFTER_A_WORD = (
    *(
        _keyword_value_shape("authorization", w, _BEARER, _is_word_without_digits)
        for w in ("uthorization", "UTHORIZATION")
    ),
    *(
        _keyword_value_shape("aws-secret-key", w, _AWS_SECRET)
        for w in ("ecret_access_key", "ECRET_ACCESS_KEY", "ecretAccessKey")
    ),
)
"""Shapes that are secret only because of a keyword before them on the line."""
OVER_LINES = Shape("private-key", "-----BEGIN ", _PEM)
_ALL = (*IN_A_WORD, *AFTER_A_WORD, OVER_LINES)


def find_secret_shapes(text: str) -> Iterator[Span]:
    """Yield all secrets with a known shape, unordered and possibly overlapping."""
    for shape in _ALL:
        if shape.start in text:
            for found in shape.pattern.finditer(text):
                if not shape.harmless(found):
                    yield Span(*found.span(shape.pattern.groups), shape.kind)


if TYPE_CHECKING:  # fast commands redact their errors too, without pydantic
    from interlock.state.calls import ApprovalRequest, Planned, ToolResult
    from interlock.state.messages import Message

_MARK = re.compile(r"\[redacted:[\w.-]{1,64}\]")
_SHORTEST = 8
"""Minimum length of an environment value to look for: shorter ones occur in too many other words."""
_PASSES = 4


class Redactor:
    """Redacts texts. `secrets`: name → value from the environment; with `enabled` false, nothing is changed."""

    def __init__(self, secrets: Mapping[str, str] | None = None, *, enabled: bool = True) -> None:
        self.enabled = enabled
        self.literals = _secret_spellings(secrets or {}) if enabled else {}
        """Strings to find verbatim → their names, longest first."""

    def add_secrets(self, secrets: Mapping[str, str]) -> None:
        """Add values that appear during a run, such as renewed tokens."""
        if self.enabled:
            both = {**self.literals, **_secret_spellings(secrets)}
            self.literals = {v: both[v] for v in sorted(both, key=lambda v: (-len(v), v))}

    def __call__(self, text: str, *, lines: bool = False) -> str:
        """Return the text with a mark for each secret; the same text if there is none. `lines`: keep line numbers."""
        for _ in range(_PASSES):  # a mark can expose a secret that was adjacent to another
            if not (spans := self.find_secrets(text)):
                break
            text = _replace_spans(text, spans, lines)
        return text

    def find_secrets(self, text: str) -> list[Span]:
        """Return the secrets in the text, by position."""
        if not self.enabled:
            return []
        found = [*find_secret_shapes(text)] if len(text) >= _SHORTEST else []
        for value, name in self.literals.items():
            at = text.find(value)
            while at >= 0:
                found.append(Span(at, at + len(value), name))
                at = text.find(value, at + len(value))
        return sorted(found)

    def redact_json(self, value: Any) -> Any:
        """Return a JSON-like value with every string redacted except keys."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, Mapping):
            return {key: self.redact_json(item) for key, item in cast(Mapping[Any, Any], value).items()}
        if isinstance(value, list | tuple):
            return [self.redact_json(item) for item in cast(list[Any], value)]
        return value

    def redact_message(self, message: "Message") -> "Message":
        """Return a message with its texts redacted; the same object if there is no secret."""
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

    def redact_result(self, result: "ToolResult") -> "ToolResult":
        """Return a result with everything redacted that it tells the model and people."""
        changes = {
            "content": self(result.content),
            "error": self.redact_json(result.error),
            "meta": self.redact_json(result.meta),
            "stop": self(result.stop) if result.stop else result.stop,
        }
        return result.model_copy(update=changes)

    def redact_planned_change(self, planned: "Planned") -> "Planned":
        """Return a planned change with what people and the model see redacted; path and hashes stay."""
        return planned.model_copy(update={"message": self(planned.message), "diff": self(planned.diff)})

    def redact_request(self, request: "ApprovalRequest") -> "ApprovalRequest":
        """Return a request with what a person is shown redacted; arguments stay, as they get executed."""
        always = {choice: self(covers) for choice, covers in request.always.items()}
        questions = tuple(
            {name: part if name == "schema" else self.redact_json(part) for name, part in one.items()}
            for one in request.questions
        )
        shown = {"reason": self(request.reason), "preview": self(request.preview), "always": always}
        return request.model_copy(update={**shown, "questions": questions})

    def for_latin1_bytes(self) -> "Redactor":
        """Return a redactor for bytes decoded as Latin-1, one character each."""
        made = Redactor(enabled=self.enabled)
        made.literals = {v.encode(errors="replace").decode("latin-1"): n for v, n in self.literals.items()}
        return made


def count_redaction_marks(text: str) -> Counter[str]:
    return Counter(_MARK.findall(text))


def find_new_redaction_mark(before: bytes, after: bytes) -> str | None:
    """Return a mark that would be written to a file: copied by the model from redacted text."""
    new = count_redaction_marks(after.decode("latin-1")) - count_redaction_marks(before.decode("latin-1"))
    return next(iter(new), None)


def _replace_spans(text: str, spans: list[Span], keep_lines: bool) -> str:
    """Return the text with each run of overlapping spans replaced by one mark, named after the first."""
    parts: list[str] = []
    done = 0
    for start, end, name in spans:
        if start >= done:
            parts += [text[done:start], f"[redacted:{name}]"]
        parts.append("\n" * text.count("\n", max(start, done), end) if keep_lines else "")
        done = max(done, end)
    return "".join([*parts, text[done:]])


def _secret_spellings(secrets: Mapping[str, str]) -> dict[str, str]:
    """Return values as spelled in plain text, JSON and URLs, with their names, except any that is part of a mark."""
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
"""Knows only shapes, no environment."""


_HELD = 3 * LONGEST
"""Maximum characters held back. More than two of the longest secrets: one that begins in the first half ends within."""
_CHUNK = 1 << 20
_ON_A_LINE = 2500
"""Maximum characters after such a keyword that may belong to its secret."""
_STARTS = tuple({shape.start for shape in IN_A_WORD})
_BLANKS = frozenset(" \t\r\n")
_WORDS = tuple({shape.start for shape in AFTER_A_WORD})
_BEGUN = frozenset(
    s.start[:n] for s in (*IN_A_WORD, *AFTER_A_WORD, OVER_LINES) for n in range(1, len(s.start))
)
_LONGEST_START = max(map(len, _BEGUN))
_PRIVATE = re.compile(r"-----BEGIN [A-Z0-9 ]{0,60}(-{0,5}\Z|PRIVATE KEY)")


class RedactingStream:
    """Redacts one stream. Text that may begin a secret is held back for the next chunk; the rest passes at once."""

    def __init__(self, redactor: Redactor) -> None:
        self._redact = redactor
        self._waiting = ""
        self._before = ""
        self._ender: frozenset[str] = frozenset()
        """Nothing is released until one of these arrives; empty: the held text must be checked."""

    def feed(self, piece: str) -> str:
        """Add a chunk and return what can be shown now."""
        if not self._redact.enabled:
            return piece
        self._waiting += piece
        if len(self._waiting) <= _HELD and self._ender and self._ender.isdisjoint(piece):
            return ""
        cut = self._find_undecided_start()
        if len(self._waiting) - cut > _HELD:
            cut = len(self._waiting) - _HELD // 2
        return self._redact_up_to(self._avoid_splitting_secret(cut) if cut < len(self._waiting) else cut)

    def flush(self) -> str:
        """Return what was held back, redacted."""
        return self._redact_up_to(len(self._waiting))

    def _redact_up_to(self, cut: int) -> str:
        if not cut:
            return ""
        ready, self._waiting = self._waiting[:cut], self._waiting[cut:]
        self._ender = frozenset()
        # The preceding character determines whether a word begins here.
        shown = self._redact(self._before + ready)[len(self._before) :]
        self._before = shown[-1:]
        return shown

    def _find_undecided_start(self) -> int:
        """Return the start of the first text that the next chunk may complete to a secret."""
        text = self._waiting
        line = max(text.rfind("\n"), text.rfind("\r")) + 1
        word = max(line, text.rfind(" ") + 1, text.rfind("\t") + 1)
        begun = min((at for start in _STARTS if (at := text.find(start, word)) >= 0), default=-1)
        self._ender = _BLANKS if begun == 0 else frozenset()
        found = [begun]
        found += [text.find(start, max(line, len(text) - _ON_A_LINE)) for start in _WORDS]
        found += [
            self._unfinished_private_key_start(text),
            self._partial_shape_start(text),
            *(_partial_secret_start(text, v) for v in self._redact.literals),
        ]
        return min((at for at in found if at >= 0), default=len(text))

    def _unfinished_private_key_start(self, text: str) -> int:
        """Return the start of an incomplete private key, or -1."""
        at = text.rfind(OVER_LINES.start)
        if at < 0 or not _PRIVATE.match(text, at):
            return -1
        end = text.find("-----END ", at)
        return at if end < 0 or text.find("-----", end + 9) < 0 else -1

    def _partial_shape_start(self, text: str) -> int:
        """Return the start of a shape's first letters at the end of the text, or -1."""
        for size in range(min(_LONGEST_START, len(text)), 0, -1):
            at = len(text) - size
            if text[at:] in _BEGUN and not (text[at - 1 : at].isalnum() and text[at].isalnum()):
                return at
        return -1

    def _avoid_splitting_secret(self, cut: int) -> int:
        """Return the cut moved off a secret that it would split: to its beginning, or its end if it is too long to
        hold."""
        for start, end, _ in reversed(self._redact.find_secrets(self._waiting)):
            if start < cut < end:
                cut = start if end - start <= LONGEST else end
        return cut


def _partial_secret_start(text: str, value: str) -> int:
    """Return where a value's beginning ends the text, or -1."""
    at = text.find(value[0], max(0, len(text) - len(value) + 1))
    while at >= 0 and not value.startswith(text[at:]):
        at = text.find(value[0], at + 1)
    return at


def redact_or_remove_file(path: Path, redact: Redactor) -> None:
    """Redact an output file written by a process; a file that can't be rewritten is removed."""
    if not redact.enabled:
        return
    stream, scratch = RedactingStream(redact.for_latin1_bytes()), path.with_name(f".{path.name}.redacted")
    try:
        scratch.touch(0o600)
        with path.open("rb") as old, scratch.open("wb") as new:
            while chunk := old.read(_CHUNK):
                new.write(stream.feed(chunk.decode("latin-1")).encode("latin-1"))
            new.write(stream.flush().encode("latin-1"))
        scratch.replace(path)
    except OSError:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)
            path.unlink(missing_ok=True)
