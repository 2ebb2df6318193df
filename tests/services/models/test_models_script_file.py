"""Scripts as files: recordings, which replay the same run, and what a file may contain."""

from pathlib import Path
from typing import Any

import pytest
from fake_gemini.fake import FakeGemini
from folders import put, table
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import call

from interlock.services.models.script import (
    ScriptedCall,
    ScriptedError,
    ScriptEntry,
    append_script_entry,
    read_script,
)
from interlock.state.errors import UserError
from interlock.state.messages import Usage

TABLE: dict[str, list[Any]] = table(__file__, "models.yaml")

pytestmark = pytest.mark.anyio


async def said(run: Any) -> str:
    return (await run.ask("hi")).reply.message.text


async def test_what_is_recorded_plays_back_as_the_same_run(
    bench: Any, fake_gemini: FakeGemini, tmp_path: Path
) -> None:
    path = tmp_path / "recorded.yaml"
    fake_gemini.play(
        [
            {"error": 503},
            {"thought": "hm\nhm", "text": "Zeile: eins\n\n  zwei 🎉 \n", "calls": [call("a", t="\x00\x85é")]},
            {"text": "ab", "chunks": 2, "cut_after": 1},
            {"finish": "MALFORMED_FUNCTION_CALL"},
            {"text": "end", "signature": "c2ln", "finish": "MAX_TOKENS"},
            {"text": '{"x": 1}'},
        ]
    )

    async def conversation(run: Any) -> list[Any]:
        replies = [(await run.ask(f"prompt {n}", task=f"t{n}")).reply for n in range(4)]
        replies.append((await run.ask("who?", role="next_speaker", task="t4")).reply)
        return [r.model_dump(exclude={"record", "duration_ms"}) for r in replies]

    first = await conversation(bench(fake_gemini.env, record_to=path))
    assert len(read_script(path)) == 5
    assert read_script(path) is read_script(path)  # each prompt of a conversation reads it
    assert await conversation(bench(fake=path)) == first


async def test_a_reply_recorded_twice_around_a_kill_counts_once(
    bench: Any, fake_gemini: FakeGemini, tmp_path: Path
) -> None:
    """Killed between the file and the row: the request is repeated, and the chain holds the later entry."""
    path = tmp_path / "recorded.yaml"
    fake_gemini.play(["lost", "kept", "next"])
    run = bench(fake_gemini.env, record_to=path)
    await said(run)
    run.conn.execute_raw("delete from model_calls")
    again = run.restarted()
    assert [await said(again), await said(again)] == ["kept", "next"]
    played = bench(fake=path)
    assert [await said(played), await said(played)] == ["kept", "next"]


@pytest.mark.parametrize(("text", "told"), TABLE["mistakes"])
def test_a_script_that_cannot_be_used_is_told_by_entry_and_field(
    tmp_path: Path, text: str, told: str
) -> None:
    path = put(tmp_path / "script.yaml", text)
    with pytest.raises(UserError, match=r"Expected|valid") as caught:
        read_script(path)
    assert told in str(caught.value) and str(path) in str(caught.value) and "\n" not in str(caught.value)


texts = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from(" \n\t:#-'\"|>é\x85\u2028"), max_size=20
)
plain = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
)
values = st.recursive(
    plain | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
calls = st.builds(
    ScriptedCall,
    name=texts,
    args=st.dictionaries(texts, values, max_size=4),
    id=st.none() | texts,
    signature=st.none() | texts,
)
counts = st.integers(0, 10**9)
scripted = st.builds(
    ScriptEntry,
    role=texts,
    agent=texts,
    ordinal=st.none() | st.integers(0, 999),
    text=texts,
    thought=texts,
    tool_calls=st.lists(calls, max_size=3).map(tuple),
    error=st.none() | st.builds(ScriptedError, status=st.none() | st.integers(400, 599), message=texts),
    usage=st.none() | st.builds(Usage, input=counts, output=counts, cached=counts, thoughts=counts),
    signature=st.none() | texts,
    finish_reason=st.none() | texts,
    problem=st.none() | texts,
)


@settings(max_examples=settings.default.max_examples // 3)  # each is read from YAML up to three times
@given(entries=st.lists(scripted, min_size=1, max_size=3))
def test_what_is_written_is_what_is_read(
    tmp_path_factory: pytest.TempPathFactory, entries: list[ScriptEntry]
) -> None:
    path = tmp_path_factory.mktemp("recorded") / "recorded.yaml"
    for count, entry in enumerate(entries, 1):
        append_script_entry(path, entry)
        assert read_script(path) == entries[:count]  # readable after every entry
    assert [list(c.args) for e in read_script(path) for c in e.tool_calls] == [
        list(c.args) for e in entries for c in e.tool_calls
    ]
