"""From its second turn on, a conversation is read from the provider's cache: also resumed, forked and compressed."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from caching_server import CachingServer, Read
from commands import Ended, execute
from patience import sampled
from serving import serving

from interlock.services.trust.decisions import record_trust_decision

MODELS = {
    "anthropic": "anthropic:claude-sonnet-4-5",
    "bedrock": "bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "openai": "openai:gpt-5",
    "openrouter": "openrouter:anthropic/claude-sonnet-4.5",
}
PACKAGES = {"anthropic": "langchain_anthropic", "bedrock": "langchain_aws", "openai": "langchain_openai"}
PACKAGES["openrouter"] = "langchain_openai"
LEAST = 0.9


@pytest.fixture
def server() -> Iterator[CachingServer]:
    with serving(CachingServer()) as made:
        yield made


def ask(provider: str, folder: Path, server: CachingServer, *arguments: str) -> Ended:
    pytest.importorskip(PACKAGES[provider])
    keys = {
        "ANTHROPIC_API_KEY": "k",
        "OPENAI_API_KEY": "k",
        "OPENROUTER_API_KEY": "k",
        "AWS_ACCESS_KEY_ID": "k",
    }
    aws = {
        "AWS_SECRET_ACCESS_KEY": "k",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    urls = {"ANTHROPIC_BASE_URL": server.url, "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": server.url}
    # The name of a server elsewhere: one on this machine has models of its own.
    proxy = {
        "HTTP_PROXY": server.url,
        "http_proxy": server.url,
        "OPENAI_BASE_URL": "http://models.example/v1",
        "OPENROUTER_BASE_URL": "http://models.example/v1",
    }
    env = {**os.environ, **keys, **aws, **urls, **(proxy if provider.startswith("open") else {})}
    done = execute(folder, *arguments, "-y", "-m", MODELS[provider], env=env)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    for number in range(40):
        lines = 60 if number else 600
        (folder / f"part{number}.txt").write_text(f"{number} is a line of this part\n" * lines)
    return folder


def reads(*numbers: int) -> list[tuple[str, dict[str, Any]]]:
    return [("read_file", {"file_path": f"part{n}.txt"}) for n in numbers]


def poor(found: list[Read]) -> list[str]:
    """The requests that weren't read as far as they could be."""
    return [
        f"{n}: {read}" for n, read in enumerate(found) if read.shared and read.cached < LEAST * read.shared
    ]


@pytest.mark.sample(2)
@pytest.mark.parametrize("provider", MODELS)
def test_each_turn_reads_what_the_last_one_sent(provider: str, work: Path, server: CachingServer) -> None:
    """One turn makes 30 calls, more blocks than the provider looks back."""
    server.turns = [reads(0), reads(*range(1, 31)), reads(31), reads(32), "Done."]
    done = ask(provider, work, server, "-o", "json", "-p", "Read the parts.")
    assert len(server.reads) == 5 and poor(server.reads[1:]) == []
    assert server.helpers == [], "the end of the answer says that it is the user's turn"
    stats = json.loads(done.stdout)["stats"]
    assert stats["cached"] > 0.6 * stats["input_tokens"]
    if provider != "openai":
        (line,) = json.loads(execute(work, "stats", "--json").stdout)
        assert line["cached_tokens"] == stats["cached"]


@pytest.mark.sweep
@pytest.mark.parametrize("provider", sampled(MODELS, "bedrock"))
def test_a_resumed_a_forked_and_a_compressed_conversation_is_read_from_the_cache(
    provider: str, work: Path, server: CachingServer
) -> None:
    record_trust_decision(work, Path.home(), trusted=True)
    (work / "AGENTS.md").write_text("A rule of this project that is long enough to count.\n" * 200)
    server.turns = [
        reads(0),
        reads(1),
        "Read.",
        reads(2),
        "More.",
        "Again.",
        "Forked.",
        "Short.",
        reads(3),
        "End.",
    ]
    run = json.loads(ask(provider, work, server, "-o", "json", "-p", "Read the parts.").stdout)["session_id"]
    ask(provider, work, server, "-c", "-p", "Go on.")
    ask(provider, work, server, "resume", run, "-p", "And on.")
    steps = json.loads(execute(work, "history", run, "--json").stdout)["steps"]
    newest = max(step["step"] for step in steps if step["step"] is not None)
    fork = execute(work, "fork", run, "--at", str(newest), "--in-place")
    assert fork.returncode == 0, fork.stderr
    ask(provider, work, server, "-c", "-p", "In the fork.")
    assert poor(server.reads[1:]) == [] and len(server.reads) == 7
    execute(work, "resume", run, "--compress")
    ask(provider, work, server, "resume", run, "-p", "Compressed?")
    ask(provider, work, server, "resume", run, "-p", "And then?")
    assert len(server.reads) == 10 and poor(server.reads[1:]) == []


@pytest.mark.parametrize("provider", ["anthropic", "openrouter"])
def test_marks_stay_at_four_and_none_is_set_where_nothing_follows(
    provider: str, work: Path, server: CachingServer
) -> None:
    server.turns = [reads(0), reads(1), reads(2), reads(3), "Done."]
    ask(provider, work, server, "-p", "Read the parts.")
    assert [read.marks for read in server.reads[1:]] == [4] * 4
    first = next(message for message in server.bodies[-1]["messages"] if message["role"] == "user")
    opening, *_ = first["content"]
    assert "cache_control" in opening, "what every run in this folder begins with"
    server.now += 301
    server.turns = ["Late."]
    ask(provider, work, server, "-c", "-p", "Still there?")
    assert server.reads[-1].cached == 0, "a cache that was used last more than five minutes ago is gone"


def test_a_budget_counts_what_the_cache_holds_at_its_price(work: Path, server: CachingServer) -> None:
    """The second request costs a tenth of the first: what is left of the budget is for its reply."""
    prices = {"input": 10.0, "output": 10.0, "cached": 1.0, "written": 12.5}
    settings = {"models": {MODELS["anthropic"]: {"price": prices}}}
    home = Path(os.environ["HOME"]) / ".interlock"
    home.mkdir(exist_ok=True)
    (home / "settings.json").write_text(json.dumps(settings))
    server.turns = [reads(0), "Done."]
    ask("anthropic", work, server, "--max-budget-usd", "0.3", "-p", "Read the part.")
    first, second = server.reads
    spent = (first.total * 12.5 + 20 * 10.0) / 1e6
    new = (second.cached * 1.0 + (second.total - second.cached) * 12.5) / 1e6
    room = (0.3 - spent - new) / 10.0 * 1e6
    assert 0.8 * room < server.bodies[1]["max_tokens"] <= 1.2 * room
