"""Pictures and documents: in a tool's result where the provider takes them there, else after it, else said plainly."""

import base64
import sys
from pathlib import Path
from typing import Any

import pytest

from interlock.services.models.model_table import Abilities
from interlock.services.models.sent_messages import AttachmentPlacer
from interlock.state.events import ErrorEvent
from interlock.state.messages import DataPart, Message, TextPart, ToolCall

pytestmark = pytest.mark.anyio
PICTURE = DataPart(type="image", mime_type="image/png", data=base64.b64encode(b"png").decode())
PDF = DataPart(type="file", mime_type="application/pdf", data=base64.b64encode(b"%PDF").decode())
ASKED = Message(role="assistant", tool_calls=(ToolCall(id="a", name="look"), ToolCall(id="b", name="ls")))
LS = Message(role="tool", tool_call_id="b", name="ls", content="x")
TAKES_ALL = Abilities(takes=("images", "PDFs"), in_results=("images", "PDFs"), is_known=True)
NO_PICTURES = Abilities(refuses=("images", "PDFs"), is_known=True)


def looked(*parts: DataPart) -> list[Message]:
    found = Message(role="tool", tool_call_id="a", name="look", content=(TextPart(text="Here."), *parts))
    return [Message(role="user", content="Look."), ASKED, found, LS]


def kinds(message: Message) -> list[str]:
    return [part.type for part in message.content if not isinstance(part, str)]


@pytest.mark.parametrize(
    ("cls", "able", "tools", "inside", "after"),
    [
        ("ChatAnthropic", TAKES_ALL, True, ["text", "image", "file"], []),
        ("ChatBedrockConverse", TAKES_ALL, True, ["text", "image", "file"], []),
        ("ChatBedrockConverse", TAKES_ALL, False, ["text", "text", "text"], ["text", "image", "file"]),
        ("ChatOpenAI", TAKES_ALL, True, ["text", "text", "text"], ["text", "image", "file"]),
        ("ChatGroq", Abilities(), True, ["text", "text", "text"], ["text", "image"]),
        ("ChatOpenAI", NO_PICTURES, True, ["text", "text", "text"], []),
    ],
)
def test_data_goes_where_the_provider_takes_it(
    cls: str, able: Abilities, tools: bool, inside: list[str], after: list[str]
) -> None:
    places = AttachmentPlacer("some:model", cls, able, tools=tools)
    sent = places(looked(PICTURE, PDF))
    assert kinds(sent[2]) == inside
    assert [m.role for m in sent[3:]] == ["tool", *(["user"] if after else [])], "results stay together"
    assert [kind for m in sent[4:] for kind in kinds(m)] == after


def test_what_a_model_takes_none_of_is_said_to_it_and_once_to_the_person() -> None:
    places = AttachmentPlacer("some:model", "ChatOpenAI", NO_PICTURES, tools=True)
    prompt = Message(role="user", content=(TextPart(text="What is this?"), PICTURE))
    first, second = places([prompt]), places([prompt])
    assert first[0] is second[0] and "takes no pictures" in first[0].text
    assert places.take_warnings() == ["Model 'some:model' takes no pictures: what is attached isn't sent."]
    assert places.take_warnings() == []


async def test_the_client_is_given_the_picture_and_the_person_hears_of_what_is_left_out(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    name = "sample_chat.SampleChat:x1"
    run = bench(settings={"model": {"name": name}, "models": {name: {"takes": ["images"]}}})
    model = (await run.models._providers.provider_for(name))._model
    model.turns.append([{"content": "ok", "response_metadata": {"stop_reason": "end_turn"}}])
    asked = await run.ask(*looked(PICTURE, PDF))
    (request,) = model.asked
    assert request[-1].content[1]["base64"] == PICTURE.data, "in the message after the results"
    assert "not sent" in str(request[-3].content)
    told = [e.message for e in asked.events if isinstance(e, ErrorEvent)]
    assert any("takes no PDF files" in text for text in told)
    sys.modules.pop("sample_chat")
