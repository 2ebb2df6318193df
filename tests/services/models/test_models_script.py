"""Scripts: chosen by what the run has recorded, so that they survive a kill; recordings are scripts, too."""

import asyncio
from typing import Any

import pytest
from scripted import tools

from interlock.engine.store.chain import SqlChain
from interlock.services.models.script import ScriptError
from interlock.services.transcript import ChainTranscript
from interlock.state.errors import ModelAuthError, ModelError
from interlock.state.messages import Message, TextDelta, Usage

pytestmark = pytest.mark.anyio


async def said(run: Any, prompt: str = "hi", role: str = "main") -> str:
    return (await run.ask(prompt, role=role)).reply.message.text


async def test_replies_are_taken_in_order_for_each_role(scripted: Any) -> None:
    run = scripted(
        {"text": "m0"},
        {"role": "next_speaker", "text": "n0"},
        {"text": "m1"},
        {"role": "next_speaker", "text": "n1"},
    )
    assert [await said(run), await said(run, role="next_speaker")] == ["m0", "n0"]
    assert [await said(run, role="next_speaker"), await said(run)] == ["n1", "m1"]


async def test_errors_come_before_their_reply_and_again_after_a_kill_among_them(scripted: Any) -> None:
    errors = {"error": {"status": 429, "retry_after": 50}}, {"error": {}}
    run = scripted(*errors, {"text": "ok"}, {"text": "next"}, delay_scale=1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await run.ask("hi")
    again = run.restarted()
    again.models._backoff = type(again.models._backoff)(0.0)
    asked = await again.ask("hi")
    assert [r.attempt for r in asked.retries] == [2, 3]
    assert "429" in asked.retries[0].reason and "could not be reached" in asked.retries[1].reason
    assert (asked.text, await said(again)) == ("ok", "next")


async def test_an_error_that_is_raised_is_met_once_in_a_process(scripted: Any) -> None:
    run = scripted({"error": {"status": 400}}, {"error": {"status": 401}}, {"text": "ok"})
    with pytest.raises(ModelError, match="answered 400"):
        await run.ask("hi")
    with pytest.raises(ModelAuthError, match="answered 401"):
        await run.ask("hi")
    assert await said(run) == "ok"
    at_the_end = scripted({"error": {"status": 500}})
    with pytest.raises(ModelError, match="answered 500"):
        await at_the_end.ask("hi", attempts=4)


async def test_a_request_that_is_not_expected_is_told_with_both_texts(scripted: Any) -> None:
    run = scripted({"expect": "tests? pass.*now", "text": "x"})
    with pytest.raises(ScriptError) as caught:
        await run.ask("fix the test")
    assert "tests? pass.*now" in str(caught.value) and "fix the test" in str(caught.value)
    assert not isinstance(caught.value, ModelError)
    assert await said(run, "all tests pass\nnow") == "x"
    new = scripted({"expect": r"\Aread_file: boom\Z", "text": "x"})
    call = Message.model_validate({"role": "assistant", "tool_calls": [{"id": "1", "name": "read_file"}]})
    answer = Message(role="tool", name="read_file", tool_call_id="1", content="boom", status="error")
    asked = await new.ask(Message(role="system", content="sys"), "go", call, answer)
    assert asked.text == "x", "it sees what is new in the request"


async def test_a_script_that_is_used_up_names_file_role_and_ordinal(scripted: Any) -> None:
    run = scripted({"text": "only"})
    await said(run)
    with pytest.raises(ScriptError, match="has 1 replies for role 'main', reply 1 was asked") as caught:
        await said(run)
    assert run.settings.model.name.removeprefix("script:") in str(caught.value)


async def test_a_scripted_reply_has_all_that_a_models_reply_has(scripted: Any) -> None:
    entry = tools(
        {"name": "a", "args": {"z": 1, "b": 2}},
        {"name": "b", "id": "own", "signature": "c2ln"},
        text="abcdef",
        chunks=3,
        thought="hm",
        usage={"input": 10, "output": 5},
        finish_reason=None,
        problem="odd",
        delay_s=0.01,
    )
    asked = await scripted(entry).ask("hi")
    assert [i.text for i in asked.items if isinstance(i, TextDelta)] == ["ab", "cd", "ef"]
    reply = asked.reply
    assert [(c.id, c.signature) for c in reply.message.tool_calls] == [("0.0", None), ("own", "c2ln")]
    assert list(reply.message.tool_calls[0].args) == ["z", "b"]
    assert (reply.usage, reply.finish_reason, reply.problem) == (Usage(input=10, output=5), None, "odd")
    assert (reply.message.thought, asked.thought) == ("hm", "hm")


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("depth", [63, 64, 190])
async def test_arguments_nested_so_deep_that_no_record_could_be_read_again_are_a_malformed_call(
    scripted: Any, depth: int
) -> None:
    deep = {"name": "deep", "args": {"x": nested(depth)}}
    run = scripted(tools(deep, {"name": "flat", "args": {}}, text="t"))
    reply = (await run.ask("hi")).reply
    if depth == 63:
        assert reply.message.tool_calls[0].args == deep["args"]
    else:
        assert reply.finish_reason == "malformed_function_call" and not reply.message.tool_calls
        assert "'deep' are nested more than 64 deep" in str(reply.problem)
    ChainTranscript(SqlChain(run.conn), run.outputs, run.run).read(
        reply.record
    )  # as another process reads it


async def test_usage_that_no_script_says_is_estimated(scripted: Any) -> None:
    asked = await scripted({"text": "x" * 40}).ask("y" * 400)
    assert asked.reply.usage == Usage(input=100, output=10)


async def test_fake_responses_answer_for_every_model_and_role_without_a_key(
    bench: Any, script_file: Any
) -> None:
    path = script_file([{"text": "a"}, {"role": "classifier", "text": "b"}])
    run = bench(fake=path)
    assert [await said(run), await said(run, role="classifier")] == ["a", "b"]
    assert run.conn.execute("select distinct model from model_calls order by 1").fetchall() == [
        ("gemini-2.5-pro",),
        ("gemini-3.5-flash-lite",),
    ]
