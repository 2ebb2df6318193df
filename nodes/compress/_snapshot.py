"""_snapshot: the snapshot in a model's answer, taken apart and written anew, so that nothing else gets through.

A model wrote it after reading files and web pages: it may hold whatever those want to see in the conversation.
"""

import re
from xml.parsers import expat
from xml.sax.saxutils import escape

SECTIONS = (
    "overall_goal",
    "active_constraints",
    "key_knowledge",
    "file_system_state",
    "artifact_trail",
    "recent_actions",
    "current_plan",
)
_ROOT = "state_snapshot"
_BEGIN, _END = f"<{_ROOT}>", f"</{_ROOT}>"
_CDATA_END = "]]>"
_MARKUP = re.compile(
    rf"</?(?:{'|'.join((_ROOT, *SECTIONS))})>"  # our tags
    r"|<!\[CDATA\[.*?\]\]>"
    r"|&(?:amp|lt|gt|quot|apos);"
    r"|([<&]|\]\]>)",  # anything else that would be markup: generics, shell operators, entities, declarations
    re.DOTALL,
)
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 can't hold, not even escaped."""


class BadSnapshot(ValueError):  # noqa: N818 - a finding, told to the model
    """Why an answer holds no usable snapshot, in words that a model can act on."""


def sections_of(answer: str) -> dict[str, str]:
    """Section → text, of the last snapshot in the answer; scratchpad and chatter are left out. Raises `BadSnapshot`.

    All sections are keys; only the goal must say something.
    """
    end = answer.rfind(_END)
    starts = [answer.rfind(_BEGIN, 0, max(end, 0)), answer.find(_BEGIN, 0, max(end, 0))]
    if end < 0 or starts[0] < 0:
        raise BadSnapshot(f"the answer holds no {_BEGIN}…{_END}")
    try:
        return _read(answer[starts[0] : end + len(_END)])
    except BadSnapshot:
        if starts[0] == starts[1]:
            raise
    return _read(answer[starts[1] : end + len(_END)])  # the last beginning was only quoted


def _read(snapshot: str) -> dict[str, str]:
    reader = _Reader()
    try:
        reader.read(_plain(_NO_XML.sub("\ufffd", snapshot)))
    except expat.ExpatError as error:
        raise BadSnapshot(f"the snapshot is not well-formed XML ({error})") from error
    sections = {name: reader.texts.get(name, "").strip() for name in SECTIONS}
    if not sections["overall_goal"]:
        raise BadSnapshot("<overall_goal> is missing or empty")
    return sections


def xml_of(sections: dict[str, str]) -> str:
    """The snapshot as XML, every character of the texts escaped where it must be."""
    inner = "\n".join(
        f"<{name}>\n{escape(sections[name])}\n</{name}>" if sections[name] else f"<{name}/>"
        for name in SECTIONS
    )
    return f"<{_ROOT}>\n{inner}\n</{_ROOT}>"


def _plain(snapshot: str) -> str:
    """Our tags, and text. After the last end of a CDATA section none is looked for: that would take long."""
    last = snapshot.rfind(_CDATA_END) + len(_CDATA_END) if _CDATA_END in snapshot else 0
    return _MARKUP.sub(_escaped, snapshot[:last]) + _MARKUP.sub(
        _escaped, snapshot[last:].replace("<![CDATA[", "&lt;![CDATA[")
    )


def _escaped(match: re.Match[str]) -> str:
    return escape(match[0]) if match[1] else match[0]


class _Reader:
    """Reads text of sections only: no declarations, no nesting, no section twice."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self._open: list[str] = []
        self._parts: list[str] = []

    def read(self, text: str) -> None:
        parser = expat.ParserCreate()
        parser.StartDoctypeDeclHandler = self._refuse
        parser.EntityDeclHandler = self._refuse
        parser.ExternalEntityRefHandler = self._refuse
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._parts.append
        parser.Parse(text, True)

    def _start(self, name: str, _: object) -> None:
        if len(self._open) == 2 or (self._open == []) != (name == _ROOT):
            raise BadSnapshot(f"<{name}> stands inside <{self._open[-1] if self._open else 'nothing'}>")
        if name in self.texts:
            raise BadSnapshot(f"<{name}> is there twice")
        self._open.append(name)
        self._parts.clear()

    def _end(self, name: str) -> None:
        if name != _ROOT:
            self.texts[name] = "".join(self._parts)
        self._open.pop()

    def _refuse(self, *_: object) -> int:
        raise BadSnapshot("the snapshot declares entities or a document type")
