"""Sub-agents: what ends one, what it may call, what it returns, and every edge of its graph."""

import asyncio
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agent_runs.stage import REPORT, Replies, Stage, approve, call, complete, says
from folders import put

from interlock.engine import Decision, Outcome
from interlock.engine.diagrams import declared_edges
from interlock.engine.read.calls import list_agents
from interlock.engine.travel.replay import replay_run
from interlock.services.context.agents import can_call_server_tool, load_agents, select_agent_tools
from interlock.services.context.definition_files import Folders
from interlock.services.files.blobs import inflate_if_deflated
from interlock.state.events import ErrorEvent
from interlock.tools.table import TOOLS

pytestmark = pytest.mark.usefixtures("nodes_declare_what_they_ask")

ME, DETECTIVE = "generalist:0", "codebase_investigator:0"
LOOK = call("list_directory", dir_path=".")
DONE = complete(result="all done")


@dataclass(frozen=True)
class Scene:
    """One sub-agent, alone."""

    replies: Replies
    status: str = "goal"
    turns: int = 1
    result: str = ""
    workflow: str = "subagent"
    definition: str = ""
    """Definition of an agent `worker` in the user's folder, which is then run."""
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    choice: str = ""
    """The answer to any pending request."""


LOOP: Replies = [says(ME, LOOK) for _ in range(5)]
SCENES: dict[str, Scene] = {
    "done at once": Scene([says(ME, DONE)], result="all done"),
    "a look, then done": Scene([says(ME, LOOK), says(ME, DONE)], turns=2, result="all done"),
    "a blank result goes back": Scene(
        [says(ME, complete(result="  ")), says(ME, DONE)], turns=2, result="all done"
    ),
    "it stops without handing over, and does so when told": Scene(
        [{"agent": ME, "text": "I think I am done"}, says(ME, DONE)], turns=2, result="all done"
    ),
    "it never hands over": Scene(
        [{"agent": ME, "text": "found x"}, {"agent": ME, "text": "still x"}], "no_complete_task", 2, "still x"
    ),
    "the last turn is used for something else": Scene(
        [{"agent": ME, "text": "hm"}, says(ME, LOOK, text="one more look")],
        "no_complete_task",
        2,
        "one more look",
    ),
    "its turns are up": Scene(
        [says("worker:0", LOOK), says("worker:0", LOOK), says("worker:0", LOOK, text="saw it")],
        "max_turns",
        3,
        "saw it",
        definition="max_turns: 2",
    ),
    "its turns are up, and the last chance is taken": Scene(
        [says("worker:0", LOOK), says("worker:0", DONE, expect="limit of 1 turn is reached")],
        turns=2,
        result="all done",
        definition="max_turns: 1",
    ),
    "a loop is named, and left": Scene([*LOOP, says(ME, DONE)], turns=6, result="all done"),
    "a model that fails": Scene([{"agent": ME, "error": {"status": 400, "message": "no"}}], "error", 1),
    "a person stops it": Scene(
        [says(ME, call("run_shell_command", command="/bin/echo hi"))], "aborted", 1, choice="cancel"
    ),
    "an open question comes back once": Scene(
        [
            says(DETECTIVE, call("update_scratchpad", questions=["who calls f?"]), complete(report=REPORT)),
            says(DETECTIVE, complete(report=REPORT), expect="who calls f"),
        ],
        turns=2,
        workflow="investigate",
    ),
}


def stage_of(scene: Scene, folder: Path) -> Stage:
    stage = Stage(folder, scene.replies, scene.settings)
    if scene.definition:
        write_agent(stage, scene.definition)
    return stage


def write_agent(stage: Stage, front: str, name: str = "worker") -> None:
    target = stage.folder / "user" / ".interlock" / "agents"
    target.mkdir(parents=True, exist_ok=True)
    text = f"---\nname: {name}\ndescription: works\n{front}\n---\nYou work.\n"
    (target / f"{name}.md").write_text(text)


def play(scene: Scene, folder: Path) -> tuple[Stage, Outcome]:
    stage = stage_of(scene, folder)
    given = {"objective": "how?"} if scene.workflow == "investigate" else {"prompt": "do it"}
    if scene.definition:
        given["agent"] = "worker"
    outcome = stage.run(scene.workflow, given)
    if scene.choice:
        assert outcome.status == "waiting"
        outcome = stage.resume(outcome, *approve(outcome, scene.choice))
    return stage, outcome


@pytest.mark.parametrize("name", SCENES)
def test_it_ends_as_it_should(name: str, played: Callable[..., Any]) -> None:
    scene = SCENES[name]
    _, outcome = played(play, scene)
    assert outcome.status == scene.status, outcome
    if scene.workflow == "subagent":
        assert outcome.output["turns"] == scene.turns
        assert scene.result in outcome.output["result"]
    codes = {"goal": 0, "max_turns": 53, "timeout": 124, "aborted": 130}
    assert outcome.exit_code == codes.get(scene.status, 1)


def test_every_edge_of_its_graphs_is_taken(played: Callable[..., Any]) -> None:
    runs = (played(play, scene) for scene in SCENES.values())
    taken = {(a, b) for stage, outcome in runs for _, a, b in stage.edges(outcome)}
    assert {(a, b) for graph, a, b in declared_edges("subagent") if graph == "subagent"} - taken == set()


def test_an_investigation_ends_with_a_validated_report(tmp_path: Path) -> None:
    """It hears the objective word for word. Unlisted tools are refused, an invalid report is returned."""
    calls = call("read_file", file_path="a.py"), call("write_file", file_path="a.py", content="x")
    replies: Replies = [
        says(DETECTIVE, *calls, expect="what {{f}} does, \\$x"),
        says(DETECTIVE, complete(report={"SummaryOfFindings": "half"}), expect="No tool 'write_file'"),
        says(DETECTIVE, complete(report=REPORT), expect="'ExplorationTrace' is a required property"),
    ]
    stage = Stage(tmp_path / "stage", replies)
    outcome = stage.run("investigate", {"objective": "what {{f}} does, $x"})
    assert (outcome.status, outcome.exit_code) == ("goal", 0)
    assert outcome.output["report"] == REPORT
    assert (stage.work / "a.py").read_text() == "def f(): pass\n"


EVERYBODY = {"# Core mandates", "Secrets", "Unknown outcome", "is data, whatever it says", "# How this ends"}
CHANGING = {"## Changes", "## Edits", "## Commands", "# Git", "# No sandbox"}
OTHERS = {"## Sub-agents", "## Todos"}


@pytest.mark.parametrize(
    ("agent", "tools", "told"),
    [
        (DETECTIVE, "", set[str]()),
        (ME, "", {*CHANGING, "## Todos"}),
        ("worker:0", "read_file, grep_search", set[str]()),
        ("worker:0", "replace", {"## Changes", "## Edits"}),
        ("worker:0", "run_shell_command", {"## Changes", "## Commands", "# Git", "# No sandbox"}),
        ("worker:0", "write_file, write_todos, invoke_agent", {"## Changes", "## Edits", *OTHERS}),
    ],
)
def test_an_agent_is_told_the_mandates_of_its_tools(
    agent: str, tools: str, told: set[str], tmp_path: Path
) -> None:
    done = complete(report=REPORT) if agent == DETECTIVE else DONE
    stage = Stage(tmp_path / "stage", [says(agent, done)])
    (stage.work / ".git").mkdir()
    if tools:
        write_agent(stage, f"tools: [{tools}]")
    assert stage.run("subagent", {"agent": agent.partition(":")[0], "prompt": "look"}).status == "goal"
    outputs = stage.folder / "home/outputs"
    rows = stage.rows("select body, file from chain")
    records = [
        (outputs / row["file"]).read_text() if row["file"] else inflate_if_deflated(row["body"]).decode()
        for row in rows
    ]
    (system,) = [record for record in records if "# How this ends" in record]
    for part in EVERYBODY | CHANGING | OTHERS:
        shown = f"{part}\\n" in system if part.startswith("#") else part in system
        assert shown == (part in EVERYBODY | told), part


def test_what_an_investigator_found_is_returned_when_it_never_completes(tmp_path: Path) -> None:
    pad = call("update_scratchpad", findings=["a.py holds f"], questions=["who calls it?"])
    replies = [
        says(DETECTIVE, pad, text="looking"),
        *([{"agent": DETECTIVE, "text": "I forgot to hand over"}] * 2),
    ]
    stage = Stage(tmp_path / "stage", replies)
    outcome = stage.run("investigate", {"objective": "how?"})
    assert outcome.status == "no_complete_task"
    assert "report" not in outcome.output
    for part in ("a.py holds f", "who calls it?", "I forgot"):
        assert part in outcome.output["partial"]


def left(monkeypatch: pytest.MonkeyPatch, *seconds: float) -> None:
    """What is left of two minutes whenever it is looked at, then nothing: however busy the machine is."""
    spent = iter([120 - left for left in seconds])
    monkeypatch.setattr("interlock.nodes.subagent.agent_seconds_spent", lambda _: next(spent, 120.0))


def test_a_turn_is_cut_when_the_time_is_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interrupted reply is requested again, as the last chance. So it is if no time is left to begin one."""
    waits = iter([3600])
    late = SimpleNamespace(sleep=lambda _: asyncio.sleep(next(waits, 0)))
    monkeypatch.setattr("interlock.services.models.script.asyncio", late)
    left(monkeypatch, 0.2)
    stage = Stage(tmp_path / "stage", [says("worker:0", DONE, delay_s=1)])
    write_agent(stage, "max_time_minutes: 2")
    assert stage.run("subagent", {"agent": "worker", "prompt": "go"}).status == "goal"
    warned = stage.rows("select count(*) as n from steps where node = 'recover'")
    assert warned[0]["n"] == 1
    left(monkeypatch, 60)
    stage = Stage(
        tmp_path / "up", [says("worker:0", LOOK), says("worker:0", DONE, expect="2 minutes is reached")]
    )
    write_agent(stage, "max_time_minutes: 2")
    outcome = stage.run("subagent", {"agent": "worker", "prompt": "go"})
    assert (outcome.status, outcome.output["turns"]) == ("goal", 2)


def test_a_call_is_cut_when_the_time_is_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that would run for hours, and a read from a server that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        for name, args in (("run_shell_command", {"command": "sleep 7777"}), ("web_fetch", {"url": url})):
            left(monkeypatch, 60, 0.2)
            replies = [says("worker:0", call(name, **args)), says("worker:0", DONE)]
            stage = Stage(tmp_path / name, replies)
            write_agent(stage, "max_time_minutes: 2")
            outcome = stage.run("subagent", {"agent": "worker", "prompt": "go"}, approval_mode="yolo")
            assert outcome.status == "goal"
            warned = stage.rows("select count(*) as n from steps where node = 'recover'")
            assert warned[0]["n"] == 1, "its last chance"
            (answer,) = stage.rows("select result from journal where tool = $1", name)
            assert json.loads(answer["result"])["error"]["type"] == "timeout"


def test_while_a_person_decides_the_clock_stops_and_the_definition_stays(tmp_path: Path) -> None:
    replies = [says("worker:0", call("run_shell_command", command="/bin/echo hi")), says("worker:0", DONE)]
    stage = Stage(tmp_path / "stage", replies)
    write_agent(stage, "max_time_minutes: 2")
    outcome = stage.run("subagent", {"agent": "worker", "prompt": "go"})
    assert outcome.status == "waiting"
    stage.age(3600)  # far more than its total limit
    write_agent(stage, "tools: [read_file]\nmax_turns: 1")
    outcome = stage.resume(outcome, *approve(outcome))
    assert (outcome.status, outcome.output["turns"]) == ("goal", 2), outcome
    assert outcome.output["duration_s"] < 3600, "the wait for a person isn't counted"


def test_agents_of_one_batch_run_side_by_side_and_their_events_carry_the_path(tmp_path: Path) -> None:
    batch = [call("invoke_agent", agent_name="generalist", prompt=f"part {n}") for n in range(3)]
    slow = [says(f"generalist:0.{n}", DONE, delay_s=2) for n in range(3)]
    limits = {"max_tokens": 1_000_000}  # while there is room, they don't wait for each other
    stage = Stage(tmp_path / "stage", [{"tool_calls": batch}, {"text": "done"}, *slow], limits=limits)
    outcome = stage.run("main", {"prompt": "go"})
    assert outcome.status == "done"
    rows = stage.rows(
        "select started, ms from steps where node = 'call_model' and namespace like '%subagent%'"
    )
    begun = [row["started"] for row in rows]
    ended = [row["started"] + row["ms"] / 1000 for row in rows]
    assert max(begun) < min(ended), "all three were under way at once"
    paths = {e.agent for e in stage.events}
    assert paths == {"", "generalist:0.0", "generalist:0.1", "generalist:0.2"}
    told = [(a.path, a.state, a.turns, a.reason) for a in list_agents(stage.folder / "home", outcome.run)]
    assert told == [(f"generalist:0.{n}", "done", 1, "goal") for n in range(3)]
    answers = [m["content"] for m in outcome.output["history"] if m["role"] == "tool"]
    assert len(answers) == 3
    assert all("all done" in text for text in answers)
    ways = {("execute", "__start__", "subagent"), ("execute", "subagent", "respond")}
    assert ways <= stage.edges(outcome)


def test_agents_nest_as_deep_as_settings_say(tmp_path: Path) -> None:
    """The lowest level has no tool that starts agents."""
    down = call("invoke_agent", agent_name="boss", prompt="go on")
    replies: Replies = [
        {"tool_calls": [down]},
        {"text": "done"},
        says("boss:0.0", down),
        says("boss:0.0", complete(result="upper")),
        says("boss:0.0/boss:0.0", down),
        says("boss:0.0/boss:0.0", complete(result="lower"), expect="No tool 'invoke_agent'"),
    ]
    stage = Stage(tmp_path / "stage", replies)
    write_agent(stage, "tools: [invoke_agent, read_file]", "boss")
    outcome = stage.run("main", {"prompt": "go"})
    assert outcome.status == "done", outcome.error
    assert [a.path for a in list_agents(stage.folder / "home", outcome.run)] == [
        "boss:0.0",
        "boss:0.0/boss:0.0",
    ]
    replies = [replies[0], {"text": "done", "expect": "No tool 'invoke_agent'"}]
    alone = Stage(tmp_path / "alone", replies, {"agents": {"maxDepth": 0}})
    assert alone.run("main", {"prompt": "go"}).status == "done"


def test_requests_of_agents_side_by_side_are_decided_each_by_itself(tmp_path: Path) -> None:
    batch = [call("invoke_agent", agent_name="generalist", prompt=f"part {n}") for n in range(2)]
    replies: Replies = [{"tool_calls": batch}, {"text": "done"}]
    for n in range(2):
        write = [call("write_file", file_path=f"{n}{m}.txt", content="x\n") for m in range(2)]
        replies += [says(f"generalist:0.{n}", *write), says(f"generalist:0.{n}", DONE)]
    stage = Stage(tmp_path / "stage", replies)
    outcome = stage.run("main", {"prompt": "go"})
    ids = {p["id"]: (p["agent"], p["args"]["file_path"]) for p in outcome.pending}
    assert len(ids) == 4
    assert {agent for agent, _ in ids.values()} == {"generalist:0.0", "generalist:0.1"}
    decisions = [
        Decision(name, "reject" if file == "01.txt" else "proceed_once") for name, (_, file) in ids.items()
    ]
    outcome = stage.resume(outcome, *decisions)
    assert (outcome.status, outcome.exit_code) == ("done", 0), "a person refused one of the changes"
    assert "refused 'write_file'" in outcome.warnings[-1]
    assert sorted(p.name for p in stage.work.glob("*.txt")) == ["00.txt", "10.txt", "11.txt"]


def test_a_rule_can_be_about_one_agent(tmp_path: Path) -> None:
    policy = tmp_path / "p.toml"
    policy.write_text(
        '[[rule]]\ntoolName = "write_file"\nsubagent = "generalist"\ndecision = "allow"\npriority = 500\n'
    )
    replies: Replies = [
        {"tool_calls": [call("invoke_agent", agent_name="generalist", prompt="x")]},
        {"tool_calls": [call("write_file", file_path="other.txt", content="main's\n")]},
        says("generalist:0.0", call("write_file", file_path="new.txt", content="agent's\n")),
        says("generalist:0.0", DONE),
    ]
    stage = Stage(tmp_path / "stage", replies)
    outcome = stage.run("main", {"prompt": "go"}, policy_files=(policy,))
    assert (stage.work / "new.txt").read_text() == "agent's\n", "its own write was allowed"
    assert outcome.status == "waiting", "the main agent's is asked about"


def test_project_agents_count_only_in_a_trusted_folder_and_bad_files_are_named(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "stage", [says("local:0", complete(report={"n": 1}))])
    folder = stage.work / ".gemini" / "agents"
    folder.mkdir(parents=True)
    schema = "output_schema: {type: object, properties: {n: {type: integer}}, required: [n]}"
    (folder / "local.md").write_text(f"---\ndescription: local\ntools: read_file\n{schema}\n---\nYou work.\n")
    (folder / "bad.md").write_text("---\ndescription: x\nmax_turns: many\n---\nYou.\n")
    with pytest.raises(Exception, match=r"local\.md, which was ignored: the folder .* isn't trusted"):
        stage.run("subagent", {"agent": "local", "prompt": "go"})
    outcome = stage.run("subagent", {"agent": "local", "prompt": "go"}, skip_trust=True)
    assert outcome.status == "goal"
    assert json.loads(outcome.output["result"]) == {"n": 1}
    assert any("bad.md: 'max_turns': " in w for w in outcome.warnings)


def test_a_compression_that_failed_is_not_tried_at_every_turn_of_an_agent(tmp_path: Path) -> None:
    """Its conversation has hardly grown since; the main agent's rule applies to it, too."""
    used = {"input": 11_000, "output": 5}
    said = ["\n".join(f"{n}{i}: the file is as it was." for i in range(250)) for n in range(2, 8)]
    turns = [says("worker:0", call("glob", pattern=text[:9]), text=text, usage=used) for text in said]
    stage = Stage(tmp_path / "stage", [])
    stage.settings = {"models": {"script": {"contextWindow": 20_000}}}
    stage.write(
        [*turns, says("worker:0", DONE), *[{"agent": "worker:0", "role": "compressor", "text": "no"}] * 9]
    )
    write_agent(stage, "max_turns: 9")
    ended = stage.run("subagent", {"agent": "worker", "prompt": "go"})
    assert ended.status == "goal", ended.output
    asked = stage.rows("select ordinal from model_calls where role = 'compressor'")
    assert len(asked) == 2, "one attempt: its draft, and the check of it"


FOREIGN = """---
name: Code Reviewer 🔍 (Bob's)
description: Formats. Usage: /x
tools: Read, Grep, Bash(git:*), TeamCreate, mcp__docs__find
model: sonnet
color: pink
permissionMode: bypassPermissions
---
You review.
"""


def test_an_agent_of_another_program_starts_with_its_tools_and_without_its_permissions(
    tmp_path: Path,
) -> None:
    """Its model has no key here, so it uses the run's and says so."""
    name = "Code Reviewer - (Bob-s)"
    replies: Replies = [
        {"tool_calls": [call("invoke_agent", agent_name=name, prompt="x")]},
        says(f"{name}:0.0", call("run_shell_command", command="touch made")),
        says(f"{name}:0.0", DONE),
        {"text": "done"},
    ]
    stage = Stage(tmp_path / "stage", replies)
    put(stage.folder / "user/.claude/agents/team/review.md", FOREIGN)
    outcome = stage.run("main", {"prompt": "go"})
    assert outcome.status == "waiting", "it can't allow itself a command"
    told = [e.message for e in stage.events if isinstance(e, ErrorEvent)]
    assert len(told) == 1 and told[0].startswith(
        f"Agent {name!r} names the model 'sonnet', so it uses the run's: "
    )
    outcome = stage.resume(outcome, *approve(outcome, "proceed_once"))
    assert outcome.status == "done" and (stage.work / "made").exists()


_LOOKS = ["grep_search", "glob", "list_directory", "codebase_search"]
AS_OTHERS_WRITE_THEM: dict[str, tuple[str, dict[str, Any]]] = {
    ".claude/agents/a.md": (
        "name: A\ndisallowedTools: Write, Bash",
        {"without": ["write_file", "run_shell_command"]},
    ),
    ".opencode/agent/a.md": ("tools:\n  write: false\nsteps: 7", {"without": ["write_file"], "turns": 7}),
    ".opencode/agents/b.md": (
        "permission: {edit: deny, bash: allow}",
        {"without": ["replace", "write_file"]},
    ),
    ".github/agents/a b.agent.md": ("tools: ['search/codebase', 'x/*']", {"tools": [*_LOOKS, "mcp_x_*"]}),
    ".github/chatmodes/c.chatmode.md": ("model: Claude Sonnet 4.5 (copilot)", {"model": "sonnet"}),
    ".cursor/agents/r.md": ("readonly: true\nmodel: x/y", {"reads": True, "model": "x:y"}),
    ".gemini/agents/g.md": ("kind: local\ntools: ['*']\ntimeout_mins: 3", {"minutes": 3}),
}
CODEX = """
name = "X"
description = "x"
sandbox_mode = "read-only"
developer_instructions = "Do."
"""


def test_each_programs_fields_are_read_and_none_refuses_an_agent(tmp_path: Path) -> None:
    for name, (front, _) in AS_OTHERS_WRITE_THEM.items():
        put(tmp_path / name, f"---\ndescription: {name}\n{front}\nanything: else\n---\nYou work.\n")
    put(tmp_path / ".codex/agents/x.toml", CODEX)
    put(tmp_path / ".opencode/agents/main.md", "---\ndescription: d\nmode: primary\n---\nYou.")
    put(tmp_path / ".claude/agents/README.md", "# Agents\n\nThese are ours.")
    loaded = load_agents(Folders(tmp_path, tmp_path / "home", trusted=True))
    for name, (_, wanted) in AS_OTHERS_WRITE_THEM.items():
        agent = next(a for a in loaded.by_name.values() if a.description == name)
        found = {
            "without": [*agent.without_tools],
            "turns": agent.max_turns,
            "tools": [*(agent.tools or ())],
            "model": agent.model,
            "reads": agent.only_reads,
            "minutes": agent.max_time_minutes,
        }
        assert {key: found[key] for key in wanted} == wanted, name
    assert loaded.by_name["X"].only_reads and loaded.by_name["X"].system_prompt == "Do."
    assert {use.problem for use in loaded.files} == {
        "",
        "it is a primary agent (mode)",
        "it has no front matter with a description, so it is no agent",
    }
    assert all("not obeyed: anything" in use.notes for use in loaded.files if use.name and use.name != "X")


def test_an_agent_that_only_reads_has_nothing_that_writes_or_runs(tmp_path: Path) -> None:
    put(tmp_path / ".cursor/agents/a.md", "---\ndescription: d\nreadonly: true\n---\nYou.")
    agent = load_agents(Folders(tmp_path, tmp_path / "home", trusted=True)).by_name["a"]
    risks = {tool.risk for tool in select_agent_tools(agent, TOOLS, depth=1).values()}
    assert risks <= {"read", "network", "state", "question"} and not can_call_server_tool(agent, "mcp_x_y")


def test_a_replay_starts_agents_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replies: Replies = [
        {"tool_calls": [call("invoke_agent", agent_name="worker", prompt="x")]},
        says("worker:0.0", DONE),
        {"text": "done"},
    ]
    stage = Stage(tmp_path / "stage", replies)
    write_agent(stage, "model: opus")
    outcome = stage.run("main", {"prompt": "go"})
    monkeypatch.setenv("ANTHROPIC_API_KEY", "x")  # now its model could be asked
    monkeypatch.setenv("HOME", str(stage.folder / "user"))
    told = asyncio.run(replay_run(stage.folder / "home", outcome.run))
    assert told.divergence is None
