"""The task loop: both protocols, one call per message, modes, mistakes, questions, results; every edge of its graph."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from agent_runs.stage import (
    Move,
    Replies,
    Stage,
    answer,
    answers,
    approve,
    call,
    cancel,
    of_hooks,
    send_back,
    untaken,
)
from folders import put
from scripted import tools

from interlock.engine import Outcome, resume_sync
from interlock.engine.diagrams import declared_edges
from interlock.services.files.blobs import inflate_if_deflated
from interlock.state.errors import InputError
from interlock.state.events import ErrorEvent, InvalidStream
from interlock.state.messages import ToolCall
from interlock.tools.table import TASK_LOOP
from interlock.tools.tag_calls import render_call_as_tags

pytestmark = pytest.mark.usefixtures("nodes_declare_what_they_ask")


def as_xml(replies: Replies) -> Replies:
    """The same replies, with calls written as tags."""
    made: Replies = []
    for reply in replies:
        calls = [ToolCall(id="", **c) for c in reply.get("tool_calls", ())]
        text = "\n\n".join([reply.get("text", ""), *map(render_call_as_tags, calls)])
        made.append({**{k: v for k, v in reply.items() if k != "tool_calls"}, "text": text, "chunks": 7})
    return made


DONE = tools(call("attempt_completion", result="All of it is done."))
JOB: Replies = [
    tools(call("read_file", file_path="a.py"), text="I look."),
    tools(call("write_to_file", path="b.py", content="x = '</content>'\n\n<path>\n")),
    tools(call("execute_command", command="cat b.py > c.py")),
    tools(call("update_todo_list", todos="- [x] one\n[-] two\n\n3. three")),
    DONE,
]


def play(stage: Stage, moves: list[Move], **given: Any) -> Outcome:
    options = {"approval_mode": given.pop("approval_mode", "yolo")}
    if "interactive" in given:
        options["interactive"] = given.pop("interactive")
    outcome = stage.run("task", {"prompt": "do it", "mode": "code", **given}, **options)
    for move in moves:
        assert (outcome.status, outcome.exit_code) == ("waiting", 75), outcome
        outcome = stage.resume(outcome, *move(outcome))
    return outcome


@pytest.mark.parametrize("workflow", ["task", "main"])
def test_the_same_job_ends_with_the_same_files_by_either_protocol(workflow: str, tmp_path: Path) -> None:
    ends: list[tuple[object, ...]] = []
    shell = "run_shell_command" if workflow == "main" else "execute_command"
    job = JOB
    if workflow == "main":
        write = call("write_file", file_path="b.py", content="x = '</content>'\n\n<path>\n")
        job = [
            JOB[0],
            tools(write),
            tools(call(shell, command="cat b.py > c.py")),
            {"text": "All of it is done."},
        ]
    for protocol, replies in (("native", job), ("xml", as_xml(job))):
        stage = Stage(tmp_path / protocol, replies)
        outcome = stage.run(
            workflow, {"prompt": "do it", "protocol": protocol}, approval_mode="yolo", mode="code"
        )
        assert (outcome.status, outcome.output["response"]) == ("done", "All of it is done."), outcome
        files = {p.name: p.read_text() for p in stage.work.iterdir()}
        calls = [
            (r["tool"], r["state"]) for r in stage.rows("select tool, state from journal order by done_at")
        ]
        chain = [
            (m["role"], m.get("tool_calls"), m.get("content", "").strip()) for m in outcome.output["history"]
        ]
        ends.append((files, calls, chain))
    assert ends[0] == ends[1]
    assert ends[0][0]["b.py"] == ends[0][0]["c.py"] == "x = '</content>'\n\n<path>\n"  # pyright: ignore


@pytest.mark.parametrize("workflow", ["task", "main", "subagent"])
def test_a_tool_that_isnt_offered_is_refused_by_either_protocol_and_the_loop_goes_on(
    workflow: str, tmp_path: Path
) -> None:
    write = call("write_to_file", path="b.py", content="b")
    end = {"task": DONE, "main": {"text": "Done."}, "subagent": tools(call("complete_task", result="Done."))}
    replies = [tools(call("read_file", file_path="a.py"), write), tools(write), end[workflow]]
    agent = {"agent": "generalist"} if workflow == "subagent" else {}
    ends: list[tuple[object, ...]] = []
    for protocol in ("native", "xml"):
        named = [{**reply, **({"agent": "generalist:0"} if agent else {})} for reply in replies]
        stage = Stage(tmp_path / protocol, as_xml(named) if protocol == "xml" else named)
        mode = {} if agent else {"mode": "ask"}
        outcome = stage.run(
            workflow, {"prompt": "x", "protocol": protocol, **agent}, approval_mode="yolo", **mode
        )
        assert not (stage.work / "b.py").exists()
        rows = stage.rows("select tool, state, result from journal order by done_at")
        results = [json.loads(row["result"]) for row in rows]
        told = [(row["tool"], r["status"], r["content"]) for row, r in zip(rows, results, strict=True)]
        ends.append((outcome.status, outcome.exit_code, str(outcome.error), told))
    assert ends[0] == ends[1]
    refused = [content for tool, status, content in told if (tool, status) == ("write_to_file", "error")]
    assert (ends[0][1], len(refused)) == (0, 2), told


def test_a_model_that_calls_by_tags_is_told_the_tools_in_its_prompt_and_sees_its_own_words_again(
    tmp_path: Path,
) -> None:
    replies = [*as_xml(JOB[:1]), {"expect": r"(?s)<tool_result>\n<output>.*def f", **as_xml([DONE])[0]}]
    stage = Stage(tmp_path, replies)
    outcome = play(stage, [], protocol="xml")
    assert outcome.status == "done", outcome.error
    told = "".join(
        inflate_if_deflated(row["body"]).decode()
        for row in stage.rows("select body from chain where file is null")
    )
    kept = "".join(p.read_text() for p in (stage.folder / "home" / "outputs").iterdir())
    assert "<attempt_completion>" in told + kept


def test_an_answer_that_breaks_off_in_a_call_is_asked_for_again_and_nothing_is_written(
    tmp_path: Path,
) -> None:
    cut = {"text": "<write_to_file><path>b.py</path><content>half", "finish_reason": "length"}
    stage = Stage(tmp_path, [cut, *as_xml([DONE])])
    outcome = play(stage, [], protocol="xml")
    assert (outcome.status, [p.name for p in stage.work.iterdir()]) == ("done", ["a.py"])
    assert [e.reason for e in stage.events if isinstance(e, InvalidStream)] == [
        "a call can't be read: the call of write_to_file ended before </content>"
    ]


def test_one_call_of_a_message_is_run_the_others_are_answered(tmp_path: Path) -> None:
    write = call("write_to_file", path="b.py", content="b\n")
    outcome = play(stage := Stage(tmp_path, [tools(call("read_file", file_path="a.py"), write), DONE]), [])
    assert [p.name for p in stage.work.iterdir()] == ["a.py"]
    assert "only one tool" in answers(outcome)[1]
    assert len(answers(outcome)) == 3


def test_the_fourth_same_call_in_a_row_is_refused_whatever_its_order_of_arguments(tmp_path: Path) -> None:
    same = tools(call("execute_command", command="echo x >> ../log", cwd="."))
    turned = tools(call("execute_command", cwd=".", command="echo x >> ../log"))
    stage = Stage(tmp_path, [same, turned, same, turned, same, DONE])
    outcome = play(stage, [])
    assert (tmp_path / "log").read_text() == "x\n" * 4
    assert ["was not executed: it is the same" in a for a in answers(outcome)].index(True) == 3


def test_a_mode_switch_is_asked_for_kept_and_holds_from_the_next_request(tmp_path: Path) -> None:
    switch = tools(call("switch_mode", mode_slug="code", reason="to build it"))
    replies = [tools(call("write_to_file", path="b.py", content="b\n")), switch, JOB[1], DONE]
    stage = Stage(tmp_path, replies)
    outcome = stage.run("task", {"prompt": "x", "mode": "architect"}, approval_mode="auto_edit")
    assert [(p["tool_name"], p["args"]["mode_slug"]) for p in outcome.pending] == [("switch_mode", "code")]
    outcome = stage.resume(outcome, *approve(outcome))
    assert (outcome.status, outcome.output["mode"]) == ("done", "code")
    assert "may only edit files that match \\.md$" in answers(outcome)[0]
    assert (stage.work / "b.py").exists()


def test_another_mode_named_while_a_request_waits_is_for_the_next_prompt_and_says_so(tmp_path: Path) -> None:
    stage = Stage(tmp_path, [tools(call("switch_mode", mode_slug="ask")), DONE])
    outcome = stage.run("task", {"prompt": "x", "mode": "architect"})
    outcome = stage.resume(outcome, *approve(outcome), mode="code", approval_mode="plan")
    assert (outcome.status, outcome.output["mode"]) == ("done", "ask")
    said = [event.message for event in stage.events if isinstance(event, ErrorEvent)]
    for what in ("mode 'code'", "approval mode 'plan'"):
        assert f"{what} counts from the next prompt: this one goes on as it began." in said


@pytest.mark.parametrize(
    ("slug", "said"),
    [("code", "in mode 'code' already"), ("cod", "no mode has this slug; there are architect")],
)
def test_a_switch_that_leads_nowhere_asks_nobody(slug: str, said: str, tmp_path: Path) -> None:
    outcome = play(
        Stage(tmp_path, [tools(call("switch_mode", mode_slug=slug)), DONE]), [], approval_mode="default"
    )
    assert (outcome.status, said in answers(outcome)[0]) == ("done", True)


TRICKS = ["docs/../b.py", "./b.py", "b.md/../b.py", "link.md", "b.py", "b.md\n", "B.PY"]


@pytest.mark.parametrize("tool", ["write_to_file", "write_file", "apply_diff", "insert_content", "replace"])
def test_no_tool_under_any_name_writes_a_file_that_the_mode_doesnt_have(tool: str, tmp_path: Path) -> None:
    """Even with empty content, through links and through similar paths."""
    diff = "<<<<<<< SEARCH\nkeep\n=======\n>>>>>>> REPLACE"
    args: dict[str, dict[str, Any]] = {
        "write_to_file": {"content": ""},
        "write_file": {"content": ""},
        "replace": {"old_string": "", "new_string": "x"},
        "insert_content": {"line": 0, "content": "x"},
        "apply_diff": {"diff": diff},
    }
    path = "path" if tool in TASK_LOOP else "file_path"
    each = [call(tool, **{path: trick}, **args[tool]) for trick in TRICKS]
    replies = [*map(tools, each), DONE] if tool in TASK_LOOP else [tools(*each), {"text": "."}]
    stage = Stage(tmp_path / "stage", replies, settings={"task": {"consecutiveMistakeLimit": 0}})
    for name in ("b.py", "B.PY"):
        (stage.work / name).write_text("keep\n")
    (stage.work / "docs").mkdir()
    (stage.work / "link.md").symlink_to("b.py")
    workflow = "task" if tool in TASK_LOOP else "main"
    outcome = stage.run(workflow, {"prompt": "x"}, approval_mode="yolo", mode="architect")
    assert all((stage.work / name).read_text() == "keep\n" for name in ("b.py", "B.PY"))
    assert not (stage.work / "b.md\n").exists()
    refusal = "Mode 'architect' (Architect) may only edit files that match \\.md$"
    told = zip(TRICKS, answers(outcome), strict=False)
    assert {trick for trick, answer in told if refusal not in answer} <= {"b.md\n"}


@pytest.mark.parametrize("tool", ["execute_command", "use_mcp_tool", "browser_action", "run_shell_command"])
def test_a_group_that_a_mode_lacks_runs_nothing_under_any_name(tool: str, tmp_path: Path) -> None:
    args = {"command": "touch ../ran"} if tool != "use_mcp_tool" else {"server_name": "s", "tool_name": "t"}
    stage = Stage(tmp_path, [tools(call(tool, **args)), DONE])
    outcome = play(stage, [], mode="orchestrator")
    assert not (tmp_path / "ran").exists()
    assert "error" in {m.get("status") for m in outcome.output["history"]}


@pytest.mark.usefixtures("model_has_seen_all_files")
def test_a_link_that_came_after_the_decision_is_no_way_around_a_mode(tmp_path: Path) -> None:
    stage = Stage(tmp_path, [tools(call("write_to_file", path="b.md", content="new\n")), DONE])
    outcome = stage.run("task", {"prompt": "x", "mode": "architect"})
    (stage.work / "b.py").write_text("keep\n")
    (stage.work / "b.md").symlink_to("b.py")
    while outcome.status == "waiting":  # what was approved isn't what exists now: it asks again
        outcome = stage.resume(outcome, *approve(outcome))
    assert (stage.work / "b.py").read_text() == "keep\n"
    assert "may only edit files" in answers(outcome)[0]


def test_a_question_offers_answers_and_the_chosen_one_may_change_the_mode(tmp_path: Path) -> None:
    tags = '<suggest mode="debug">Look into it</suggest>\n<suggest>Leave it</suggest>'
    ask = tools(call("ask_followup_question", question="Which?", follow_up=tags))
    for text, mode in (("Look into it", "debug"), ("Leave it", "code"), ("Something else", "code")):
        stage = Stage(tmp_path / text, [ask, DONE])
        outcome = stage.run("task", {"prompt": "x", "mode": "code"}, approval_mode="yolo")
        assert [o["label"] for o in outcome.pending[0]["questions"][0]["options"]] == [
            "Look into it",
            "Leave it",
        ]
        outcome = stage.resume(outcome, *answer(text)(outcome))
        assert (outcome.output["mode"], answers(outcome)[0]) == (mode, text)


def test_steps_are_kept_and_those_that_a_task_is_given_are_its_first(tmp_path: Path) -> None:
    assert play(Stage(tmp_path / "a", JOB), []).output["todos"] == [
        {"description": "one", "status": "completed"},
        {"description": "two", "status": "in_progress"},
        {"description": "three", "status": "pending"},
    ]
    stage = Stage(tmp_path / "b", [{"expect": r"\[ \] first", **DONE}])
    outcome = play(stage, [], todos="[ ] first")
    assert outcome.output["todos"] == [{"description": "first", "status": "pending"}]
    odd = tools(call("update_todo_list", todos="[x] first\nSteps:\n- [?] second"))
    outcome = play(Stage(tmp_path / "c", [odd, DONE]), [], todos="[ ] first")
    assert outcome.output["todos"] == [{"description": "first", "status": "pending"}]
    assert "line 2 ('Steps:') isn't a step, expected `[ ] step`" in answers(outcome)[0]
    with pytest.raises(InputError, match=r"line 1 \('- \[\?\] second'\) isn't a step"):
        play(Stage(tmp_path / "d", []), [], todos="- [?] second")


@pytest.mark.parametrize(
    ("setting", "tool", "args"),
    [
        ("todoListEnabled", "update_todo_list", {"todos": "[ ] x"}),
        ("diffEnabled", "apply_diff", {"path": "a.py", "diff": "x"}),
    ],
)
def test_a_tool_that_settings_take_away_is_neither_offered_nor_run(
    setting: str, tool: str, args: dict[str, Any], tmp_path: Path
) -> None:
    said: list[tuple[bool, str]] = []
    for on in (True, False):
        stage = Stage(tmp_path / str(on), [tools(call(tool, **args)), DONE], settings={"task": {setting: on}})
        outcome = play(stage, [])
        prompt = stage.run("system-prompt", {"flavour": "task", "mode": "code", "protocol": "xml"}).output[
            "text"
        ]
        said.append((tool in prompt, answers(outcome)[0]))
    assert [named for named, _ in said] == [True, False]
    assert [text.startswith(f"No tool {tool!r}.") for _, text in said] == [False, True]


def test_a_task_goes_on_from_an_earlier_conversation_whose_open_calls_are_answered(tmp_path: Path) -> None:
    history: list[dict[str, Any]] = [
        {"role": "user", "content": "begin"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "name": "read_file", "args": {}}]},
    ]
    stage = Stage(tmp_path, [{"expect": "do it", **DONE}])
    outcome = play(stage, [], resume=history)
    assert outcome.status == "done", outcome.error
    assert "was interrupted before this call was completed" in answers(outcome)[0]


def test_three_mistakes_with_nobody_there_are_named_and_a_prompt_goes_on_as_after_a_task_that_is_done(
    tmp_path: Path,
) -> None:
    switch = tools(call("switch_mode", mode_slug="ask"))
    stage = Stage(
        tmp_path, [BAD, TEXT, BAD, {**switch, "expect": "use a.py"}, DONE, {"expect": "more", **DONE}]
    )
    outcome = play(stage, [])
    assert (outcome.status, outcome.exit_code, outcome.pending) == ("failed", 1, [])
    said = (outcome.error or {})["message"]
    assert "(1) read_file: 'file_path' is missing; (2) no tool was called; (3) read_file" in said
    for prompt in ("use a.py", "more"):
        outcome = resume_sync(outcome.run, prompt=prompt, options=stage.options)
        assert (outcome.status, outcome.output["mode"]) == ("done", "ask"), outcome


def test_a_call_by_server_and_tool_says_what_there_is_and_is_denied_under_the_name_it_was_made_by(
    tmp_path: Path,
) -> None:
    named = [
        call("use_mcp_tool", server_name="x", tool_name="y", arguments=given) for given in ('{"a": 1}', "{")
    ]
    first, second, _ = answers(play(Stage(tmp_path / "none", [*map(tools, named), DONE]), []))
    assert first == "There is no MCP server 'x'. There are: none."
    assert "expected one JSON object" in second
    stage = Stage(tmp_path / "denied", [tools(named[0]), DONE], {"tools": {"exclude": ["use_mcp_tool"]}})
    assert "denied by settings tools.exclude 'use_mcp_tool'" in answers(play(stage, []))[0]


@dataclass(frozen=True)
class Scene:
    """Replies, what a person does, and how it ends."""

    replies: Replies
    moves: list[Move] = field(default_factory=list[Move])
    status: str = "done"
    says: str = ""
    given: dict[str, Any] = field(default_factory=dict[str, Any])
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    limits: dict[str, Any] = field(default_factory=dict[str, Any])


BAD = tools(call("read_file"))
TEXT = {"text": "I think about it."}
CONFIRM = {"task": {"confirmCompletion": True}}
ASK = {"task": {"askAfterMistakes": True}}
LOOP = {"text": "the same old words again, and no end of them. " * 40}
SCENES = {
    "a job": Scene(JOB, says="All of it"),
    "no call is a mistake that is told": Scene([TEXT, DONE], says="called no tool"),
    "three mistakes ask a person": Scene(
        [BAD, TEXT, BAD, DONE], [answer("use a.py")], says="use a.py", settings=ASK
    ),
    "three words without a call": Scene([TEXT, TEXT, TEXT, DONE], [answer("")], says="All", settings=ASK),
    "three mistakes with nobody there": Scene([BAD, TEXT, BAD], [], "failed"),
    "three words with nobody there": Scene([TEXT, TEXT, TEXT], [], "failed"),
    "a person ends it": Scene([BAD, BAD, BAD], [lambda o: approve(o, "cancel")], "cancelled", settings=ASK),
    "a mistake that was made good doesn't count": Scene([BAD, BAD, JOB[0], BAD, DONE], says="All"),
    "no limit of mistakes": Scene(
        [BAD] * 3 + [TEXT] + [BAD] * 2 + [DONE], settings={"task": {"consecutiveMistakeLimit": 0}}
    ),
    "open steps hold a result back": Scene(
        [
            tools(call("update_todo_list", todos="[x] a\n[-] b")),
            DONE,
            tools(call("update_todo_list", todos="[x] a\n[x] b"), expect="steps that aren't done"),
            DONE,
        ],
        says="All of it",
        settings={"task": {"preventCompletionWithOpenTodos": True}},
    ),
    "a result is accepted": Scene([DONE], [approve], settings=CONFIRM),
    "a result gets feedback": Scene(
        [DONE, {"expect": "and test it", **DONE}], [send_back("and test it"), approve], settings=CONFIRM
    ),
    "a result ends it": Scene([DONE], [cancel], "cancelled", settings=CONFIRM),
    "who sits there is asked": Scene([DONE], [approve], given={"interactive": True}),
    "a batch is cancelled": Scene([JOB[1]], [cancel], "cancelled", given={"approval_mode": "default"}),
    "turns are used up": Scene([JOB[0]] * 3, [], "turn_limit", limits={"max_turns": 2}),
    "a loop is told of": Scene([LOOP, DONE], says="All"),
    "a subtask": Scene(
        [
            tools(call("new_task", mode="ask", message="look", todos="[ ] a")),
            {"expect": "it is red", **DONE},
            tools(call("attempt_completion", result="it is red"), agent="task:0.0"),
        ],
        says="it is red",
    ),
    "all calls withheld": Scene([JOB[0]] * 4 + [DONE], says="not executed"),
    "a command": Scene([{"expect": "Fix it well", **DONE}], given={"prompt": "/fix a.py", "mode": ""}),
    "a command with a shell line": Scene([{"expect": "It says hi", **DONE}], given={"prompt": "/ask"}),
    "a command is cancelled": Scene(
        [], [cancel], "cancelled", given={"prompt": "/ask", "approval_mode": "default"}
    ),
    "a command that isn't there": Scene([], [], "failed", "fix", given={"prompt": "/fxi it"}),
}


def staged(scene: Scene, folder: Path) -> tuple[Stage, Outcome]:
    stage = Stage(folder, scene.replies, settings=scene.settings, limits=scene.limits)
    put(folder / "user/.roo/commands/fix.md", "---\nmode: code\n---\nFix it well.")
    put(folder / "user/.gemini/commands/ask.toml", "prompt = 'It says !{touch made; echo hi}'")
    return stage, play(stage, scene.moves, **scene.given)


def test_a_command_chooses_the_mode_only_if_nobody_did(tmp_path: Path) -> None:
    for given, mode in (({}, "code"), ({"mode": "ask"}, "ask")):
        scene = Scene([DONE], given={"prompt": "/fix a.py", "mode": "", **given})
        _, outcome = staged(scene, tmp_path / mode)
        assert outcome.output["mode"] == mode


@pytest.mark.parametrize("name", SCENES)
def test_a_scene_ends_as_it_should(name: str, played: Callable[..., Any]) -> None:
    _, outcome = played(staged, SCENES[name])
    assert outcome.status == SCENES[name].status, outcome
    assert SCENES[name].says in json.dumps(outcome.output)


def test_every_declared_edge_is_taken_by_some_scene(played: Callable[..., Any]) -> None:
    in_a_mode = Scene([tools(call("execute_command", command="x")), DONE], given={"mode": "ask"})
    runs = [played(staged, scene) for scene in (*SCENES.values(), in_a_mode)]
    held = {("decide", "validate", "check_mode"), ("decide", "check_mode", "respond")}
    held |= {("decide", "check_mode", "check_policy"), ("tools", "parse", "next_group")}
    assert (
        untaken("task", runs) | held - {edge for stage, outcome in runs for edge in stage.edges(outcome)}
        == set()
    )


def hook(command: str) -> list[dict[str, Any]]:
    return [{"hooks": [{"type": "command", "command": command}]}]


def test_hooks_stand_around_the_prompt_and_hear_of_what_waits(tmp_path: Path) -> None:
    """Every edge of the task loop that only hooks take, except those that a kill leads to."""
    heard = hook("cat >> ../heard")
    after = hook("[ -e ../sent ] || { touch ../sent; echo 'test it' >&2; exit 2; }")
    scenes: dict[str, tuple[Any, Replies, list[Move], str, dict[str, Any]]] = {
        "ends": (hook("echo no >&2; exit 2"), [DONE], list[Move](), "blocked_by_hook", {}),
        "passes": (
            hook("echo for you"),
            [DONE, DONE],
            [approve, approve],
            "done",
            {"confirmCompletion": True},
        ),
        "asks": (hook("exit 0"), [BAD, BAD, BAD, DONE, DONE], [answer("go on")], "done", ASK["task"]),
    }
    taken: set[tuple[str, str, str]] = set()
    for name, (before, replies, moves, status, settings) in scenes.items():
        hooks = {"BeforeAgent": before, "AfterAgent": after, "Notification": heard}
        stage = Stage(tmp_path / name, replies, settings={"hooks": hooks, "task": settings})
        outcome = play(stage, moves)
        assert outcome.status == status, outcome
        taken |= stage.edges(outcome)
    told = [(tmp_path / name / "heard").read_text() for name in ("passes", "asks")]
    assert ["attempt_completion waits" in told[0], "task waits" in told[1]] == [True, True]
    declared = {e for e in declared_edges("task") if e[0] == "task" and of_hooks(e)}
    assert {e for e in declared - taken if not {"ask_hook", "await_hook"}.intersection(e)} == set()


def test_a_servers_tool_by_names_is_a_call_of_that_tool_for_rules_people_and_the_journal(
    tmp_path: Path,
) -> None:
    by_name = call("use_mcp_tool", server_name="odd", tool_name="note", arguments='{"text": "kept"}')
    stage = Stage(
        tmp_path, [tools(by_name), tools(call("use_mcp_tool", server_name="odd", tool_name="no")), DONE]
    )
    server = Path(__file__).parent / "mcp_servers" / "odd.py"
    odd = {
        "command": sys.executable,
        "args": ["-I", "-S", str(server)],
        "env": {"ODD_LOG": str(tmp_path / "log"), "ODD_TOOLS": "note"},
    }
    stage.settings["mcpServers"] = {"odd": odd}
    hook = {"type": "command", "command": f"echo hooked >> {tmp_path}/hooked"}
    stage.settings["hooks"] = {"BeforeTool": [{"matcher": "use_mcp_tool", "hooks": [hook]}]}
    outcome = stage.run("task", {"prompt": "x", "mode": "code"})
    assert [(p["tool_name"], p["args"]) for p in outcome.pending] == [("mcp_odd_note", {"text": "kept"})]
    outcome = stage.resume(outcome, *approve(outcome))
    assert outcome.status == "done", outcome
    assert outcome.output["history"][2]["name"] == "use_mcp_tool"
    assert "has no tool 'no'. It has: " in answers(outcome)[1]
    assert ("mcp_odd_note", "done") in [(*row,) for row in stage.rows("select tool, state from journal")]
    assert (tmp_path / "hooked").read_text() == "hooked\n"
