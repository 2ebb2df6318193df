"""A budget covers the whole tree, stops a run before it is passed, and can be raised."""

import json
from pathlib import Path
from typing import Any

import pytest
from agent_runs.stage import Replies, Stage, call, complete, says
from commands import execute
from databases import changed
from fake_gemini.fake import FakeGemini

from interlock.state.errors import InputError

COST = {"input": 6_000, "output": 1_000}
PRICES = {"models": {"script": {"price": {"input": 50.0, "output": 1000.0}}}}
"""A reply of COST is 1.30 dollars."""


def family(count: int, **more: Any) -> Replies:
    """A parent with `count` agents, each with one reply."""
    batch = [call("invoke_agent", agent_name="generalist", prompt=f"part {n}") for n in range(count)]
    workers = [says(f"generalist:0.{n}", complete(result="ok"), usage=COST, **more) for n in range(count)]
    return [{"tool_calls": batch, "usage": COST}, {"text": "done", "usage": COST}, *workers]


def spent(stage: Stage) -> int:
    (row,) = stage.rows("select sum(input_tokens + output_tokens) as n from model_calls")
    return row["n"]


def test_agents_side_by_side_stop_before_the_limit_is_passed(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "stage", family(6, delay_s=0.05), limits={"max_tokens": 17_000})
    outcome = stage.run("main", {"prompt": "go"})
    assert (outcome.status, outcome.exit_code, outcome.error["type"]) == ("budget", 57, "budget")
    assert spent(stage) == 14_000
    assert (
        "doesn't cover another call: 14000 were used, and the latest call took 7000"
        in outcome.error["message"]
    )
    (row,) = stage.rows("select count(*) as n from reservations")
    assert row["n"] == 0, "what was refused holds nothing"


def test_a_call_over_the_limit_is_not_made_and_raising_it_resumes(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "stage", family(3), limits={"max_tokens": 14_000})
    outcome = stage.run("main", {"prompt": "go"})
    assert (outcome.status, spent(stage)) == ("budget", 14_000)
    outcome = stage.resume(outcome)
    assert (outcome.status, spent(stage)) == ("budget", 14_000), "nothing was asked meanwhile"
    outcome = stage.resume(outcome, limits={"max_tokens": 1_000_000})
    assert (outcome.status, outcome.exit_code, spent(stage)) == ("done", 0, 5 * 7_000)
    (row,) = stage.rows("select count(distinct agent) as n from model_calls where agent <> ''")
    assert row["n"] == 3


def test_money_is_counted_by_the_prices_of_the_settings(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "stage", family(3), PRICES, {"max_budget_usd": 2.0})
    outcome = stage.run("main", {"prompt": "go"})
    assert (outcome.status, outcome.exit_code, spent(stage)) == ("budget", 57, 7_000)
    assert "$1.3000 was spent, and the latest call took $1.3000" in outcome.error["message"]
    assert stage.resume(outcome, limits={"max_budget_usd": 50}).status == "done"


def test_a_first_call_whose_request_alone_is_over_the_budget_is_not_made(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "stage", family(3), PRICES, {"max_budget_usd": 0.05})
    outcome = stage.run("main", {"prompt": "go"})
    assert (outcome.status, outcome.exit_code) == ("budget", 57)
    assert "$0.05 doesn't cover a call: $0.0000 was spent, and its request alone" in outcome.error["message"]
    assert stage.rows("select 1 from model_calls") == []


def test_a_budget_in_dollars_needs_a_price(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "stage", family(1), limits={"max_budget_usd": 2.0})
    with pytest.raises(InputError, match=r"price of 'script:.*models\.NAME\.price") as refused:
        stage.run("main", {"prompt": "go"})
    assert refused.value.field == "limits.max_budget_usd"


def test_a_budget_in_dollars_needs_the_price_of_every_model_that_may_be_chosen(tmp_path: Path) -> None:
    unknown = {"model": {"aliases": {"pro": "gemini-2.5-pro", "flash": "gemini-unheard-of"}}}
    stage = Stage(tmp_path / "stage", [], unknown, {"max_budget_usd": 2.0})
    with pytest.raises(InputError, match=r"price of 'gemini-unheard-of'"):
        stage.run("main", {"prompt": "go"}, model="auto", env={"GEMINI_API_KEY": "k", "PATH": "/bin"})


def test_turns_of_sub_agents_count_for_the_run(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "stage", family(3, delay_s=0.05), limits={"max_session_turns": 2})
    outcome = stage.run("main", {"prompt": "go"})
    assert outcome.status == "budget"
    (row,) = stage.rows("select count(*) as n from model_calls where role = 'main'")
    assert row["n"] == 2
    assert stage.resume(outcome, limits={"max_session_turns": 20}).status == "done"


def test_a_call_that_was_cut_counts_at_its_estimate(tmp_path: Path) -> None:
    """The state after a kill: a reservation of an earlier driver, without a reply."""
    stage = Stage(tmp_path / "stage", [{"text": "", "usage": COST}, {"text": "done", "usage": COST}])
    stage.limits = {"max_tokens": 8_000}
    outcome = stage.run("main", {"prompt": "go"})
    assert outcome.status == "budget", "7,000 are used up by an answer that has to be asked for again"
    changed(
        stage.folder / "home",
        "insert into reservations (run, task, epoch, agent, model, tokens, under_way, at) "
        "values ($1, 'cut', 0, '', 'm', 5000, 1, 0)",
        outcome.run,
    )
    assert "12000 were used" in stage.resume(outcome, limits={"max_tokens": 12_000}).error["message"]
    assert stage.resume(outcome, limits={"max_tokens": 100_000}).status == "done"


def test_a_reply_takes_no_more_than_the_budget_leaves(tmp_path: Path, fake_gemini: FakeGemini) -> None:
    """The server counts more than is estimated: that is known after the first run, here and in later ones."""

    def asked(*arguments: str) -> Any:
        return execute(
            tmp_path, "-m", "gemini-2.5-pro", "-o", "json", "-p", "Tell.", *arguments, env=fake_gemini.env
        )

    long = " ".join(f"Line {n} of {n * n} tells of {hash((n, 7)) % 9973}." for n in range(9_000))
    speaker = {"match": {"schema": "next_speaker"}, "reply": '{"reasoning": "r", "next_speaker": "user"}'}
    fake_gemini.play({"rules": [speaker], "replies": ["Short."], "default": long})
    first = json.loads(asked().stdout)["stats"]
    assert "maxOutputTokens" not in fake_gemini.requests[0].body["generationConfig"]
    limit = first["total_tokens"] + 2_000
    done = asked("--max-tokens", str(limit), "-o", "stream-json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    told = [e["message"] for e in events if e["type"] == "error" and e["severity"] == "warning"]
    assert "was cut off after" in told[0] and "the budget leaves no more" in told[0]
    assert fake_gemini.requests[2].body["generationConfig"]["maxOutputTokens"] > 1_500
    assert limit * 0.95 < events[-1]["stats"]["total_tokens"] <= limit
    dollars = asked("--max-budget-usd", "0.05")
    assert 0.045 < json.loads(dollars.stdout)["stats"]["usd"] <= 0.05
