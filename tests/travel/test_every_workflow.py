"""Each workflow, run once and replayed: the same states, whatever has happened to the folder meanwhile."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from agent_runs.stage import REPORT
from folders import put, tree
from kill_runs.stops import SCENES
from scripted import call, tools
from travel.conftest import Desk

from interlock.engine import Decision, Outcome, resume_sync, run_sync
from interlock.graphs import PIPELINES
from interlock.services.trust.decisions import record_trust_decision

pytestmark = pytest.mark.usefixtures("nodes_declare_what_they_ask")

Replies = list[dict[str, Any]]
HISTORY = [
    {"role": "user", "content": "Do one."},
    {"role": "assistant", "content": "One is done."},
    {"role": "user", "content": "Do two."},
    {"role": "assistant", "content": "Two is done, too."},
]
DONE: Replies = [{"text": "done"}]
TEST = "grep -q 'return 1' a.py || { echo 'FAIL: test_f (test_a.T)'; exit 1; }; echo 'Ran 1 test in 0.001s'\n"
"""A check that says what unittest says."""


def calls(*named: tuple[str, dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "args": args} for name, args in named], **more}


READ = ("read_file", {"file_path": "a.py"})
WRITE = ("write_file", {"file_path": "new.py", "content": "x = 1\n"})
SHELL = ("run_shell_command", {"command": "date +%N; echo $RANDOM >> log"})
AGENT = "codebase_investigator"
FOUND = tools(call("complete_task", report=REPORT), agent=f"{AGENT}:0.0")

RUNS: list[tuple[str, dict[str, Any], Replies]] = [
    ("main", {"prompt": "Look at @a.py"}, [calls(READ, WRITE, SHELL), *DONE]),
    ("main", {"prompt": "look", "history": HISTORY}, [calls(("codebase_search", {"query": "f"})), *DONE]),
    *((scene.workflow, scene.given, [*scene.replies]) for name, scene in SCENES.items() if name in PIPELINES),
    ("loop-check", {"events": [{"type": "tool_call", "name": "a", "args": {}}] * 6}, []),
    ("context", {"prompt": "Look at @a.py and @gone"}, []),
    ("system-prompt", {}, []),
    ("system-prompt", {"flavour": "task", "mode": "code"}, []),
    (
        "task",
        {"prompt": "go"},
        [
            calls(("new_task", {"mode": "code", "message": "part"})),
            calls(WRITE, agent="task:0.0"),
            calls(("attempt_completion", {"result": "part done"}), agent="task:0.0"),
            calls(("attempt_completion", {"result": "all done"})),
        ],
    ),
    ("mode", {"switch_to": "code"}, []),
    ("mode", {"mode": "architect", "tool": "write_file", "path": "a.py"}, []),
    ("mcp", {"action": "list"}, []),
    ("search", {"query": "function f"}, []),
    ("repair", {}, [{"role": "repair", "text": "```python\ndef f():\n    return 1\n```\n"}]),
    ("init", {}, [calls(("write_file", {"file_path": "GEMINI.md", "content": "# a\n"})), *DONE]),
]
MORE: list[tuple[str, dict[str, Any], Replies]] = [
    (
        "main",
        {"prompt": "go", "protocol": "xml"},
        [{"text": "<read_file><path>a.py</path></read_file>"}, *DONE],
    ),
    ("main", {"prompt": "go", "mode": "ask"}, [calls(WRITE), *DONE]),
    ("main", {"prompt": "go", "limits": {"max_turns": 1}}, [calls(READ), calls(READ), *DONE]),
    ("main", {"prompt": "look"}, [calls((AGENT, {"objective": "f"})), FOUND, *DONE]),
    ("task", {"prompt": "go"}, [calls(READ), calls(("attempt_completion", {"result": "all done"}))]),
    (
        "task",
        {"prompt": "go", "mode": "architect"},
        [
            calls(("switch_mode", {"mode_slug": "code", "reason": "r"})),
            calls(WRITE),
            calls(("attempt_completion", {"result": "r"})),
        ],
    ),
]
"""Other ways through `main` and `task`."""


def ended(desk: Desk, workflow: str, given: dict[str, Any], replies: Replies) -> Outcome:
    tree(desk.work, {"a.py": "def f():\n    pass\n", "tests/run.sh": TEST})
    options = desk.options(replies, check="sh tests/run.sh" if workflow == "repair" else "")
    outcome = run_sync(workflow, given, options=options)
    while outcome.status == "waiting":
        options = desk.options(replies, workspace=None, approval_mode=None)
        decisions = [Decision(r["id"], "proceed_once", text="this one") for r in outcome.pending]
        outcome = resume_sync(outcome.run, decisions=decisions, options=options)
    return outcome


def replayed(desk: Desk, run: str) -> Any:
    desk.clear()
    return desk("replay", run, "--json").json


@pytest.mark.sample(8)
@pytest.mark.parametrize(
    ("workflow", "given", "replies"),
    [*RUNS, *(pytest.param(*run, marks=pytest.mark.sweep) for run in MORE)],
)
def test_a_run_of_each_workflow_replays_with_the_same_states(
    desk: Desk, workflow: str, given: dict[str, Any], replies: Replies
) -> None:
    assert {name for name, _, _ in RUNS} == {*PIPELINES}
    outcome = ended(desk, workflow, given, replies)
    assert (outcome.error or {}).get("type") != "script", outcome.error
    told = replayed(desk, outcome.run)
    assert told["divergence"] is None, told["divergence"]
    assert told["steps"]


HOOK = """cat >> {log}; echo '{{"hookSpecificOutput": {{"additionalContext": "be brief"}}}}'"""


def test_a_run_with_hooks_replays_without_them(desk: Desk) -> None:
    log = desk.folder / "log"
    events = ("SessionStart", "BeforeAgent", "BeforeTool", "AfterTool", "AfterAgent", "SessionEnd")
    hooks = {e: [{"hooks": [{"command": HOOK.format(log=shlex.quote(str(log)))}]}] for e in events}
    put(Path.home() / ".interlock" / "settings.json", {"hooks": hooks})
    outcome = ended(desk, "main", {"prompt": "go"}, [calls(READ, WRITE), *DONE])
    fired = log.read_text()
    assert all(event in fired for event in events)
    assert "be brief" in json.dumps(outcome.output["history"])
    assert replayed(desk, outcome.run)["divergence"] is None
    assert log.read_text() == fired


def test_a_replay_gives_each_answer_of_a_hook_once_whichever_prompt_it_came_with(desk: Desk) -> None:
    """Each prompt is a drive of its own."""
    count = desk.folder / "count"
    line = f"""echo >> {count}; echo '{{"hookSpecificOutput": {{"additionalContext": "'$(wc -l < {count})'"}}}}'"""
    hooks = {"BeforeAgent": [{"hooks": [{"command": line}]}]}
    put(Path.home() / ".interlock" / "settings.json", {"hooks": hooks})
    outcome = ended(desk, "main", {"prompt": "go"}, [*DONE, *DONE])
    options = desk.options([*DONE, *DONE], workspace=None, approval_mode=None)
    again = resume_sync(outcome.run, prompt="once more", options=options)
    told = json.dumps(again.output["history"])
    assert again.status == "done" and count.read_text() == "\n\n" and "1" in told and "2" in told
    assert replayed(desk, outcome.run)["divergence"] is None


def test_a_workflow_of_the_users_replays(desk: Desk) -> None:
    file = put(desk.work / ".interlock" / "workflows" / "look.py", OWN)
    record_trust_decision(desk.work, Path.home(), trusted=True)
    replies = [{"text": "an answer"}]
    outcome = ended(desk, "look", {}, replies)
    assert outcome.output["size"] == 18
    (desk.work / "a.py").write_text("")
    told = desk("replay", outcome.run, "--json").json
    assert told["divergence"] is None, told["divergence"]
    file.write_text(OWN.replace(", nondeterministic=True", ""))
    changed = desk("replay", outcome.run, "--json").json["divergence"]["error"]["message"]
    assert "has changed since it ran" in changed, "it doesn't look again"


OWN = '''"""look: asks a model, and looks how long a file is."""

from pathlib import Path

from interlock.workflow import END, START, Deps, Graph, Input, Output, Runtime, State, Workflow, ask_model, node


class LookInput(Input):
    pass


class LookOutput(Output):
    size: int


class LookState(State, total=False):
    size: int
    answer: str


@node(writes=("answer",))
async def ask(state: LookState, runtime: Runtime[Deps]) -> LookState:
    return {"answer": await ask_model(runtime, "Well?")}


@node(writes=("size",), nondeterministic=True)
async def look(state: LookState, runtime: Runtime[Deps]) -> LookState:
    return {"size": len(Path(runtime.context.info.workspace, "a.py").read_text())}


def build() -> Graph:
    g = Graph("look", LookState)
    g.nodes(ask, look)
    g.edge(START, "ask")
    g.edge("ask", "look")
    g.edge("look", END)
    return g


WORKFLOW = Workflow("look", build, LookInput, LookOutput)
'''


FILES = {
    ".interlock/commands/fix.toml": 'prompt = "Fix {{args}} by @{b.txt}, and say what !{echo hi} prints."\n',
    "b.txt": "the rules\n",
    "sub/GEMINI.md": "Write short lines.\n",
    "sub/x.py": "x = 1\n",
}
TARGET = {"role": "edit_target", "text": json.dumps({"corrected_target_snippet": "pass"})}


@pytest.mark.parametrize(
    ("workflow", "given", "replies"),
    [
        ("main", {"prompt": "/fix it"}, DONE),
        ("main", {"prompt": "/fxi it"}, DONE),
        ("main", {"prompt": "go"}, [calls(("read_file", {"file_path": "sub/x.py"})), *DONE]),
        ("edit", {"file_path": "a.py", "old_string": "paas", "new_string": "return 1"}, [TARGET]),
    ],
)
def test_what_the_folder_said_is_as_it_was_said_then(
    desk: Desk, workflow: str, given: dict[str, Any], replies: Replies
) -> None:
    """The project's commands, memory files beside a call, a file shown to a helper: all are gone."""
    tree(desk.work, FILES)
    record_trust_decision(desk.work, Path.home(), trusted=True)
    outcome = ended(desk, workflow, given, replies)
    told = replayed(desk, outcome.run)
    assert told["divergence"] is None, told["divergence"]
