"""What the model hasn't seen isn't written over: not a person's text, nor another run's, nor a formatter's."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace as replace_fields
from typing import Any

import pytest
from patience import until
from scripted import says
from travel.conftest import Desk, shell, write

from interlock.engine import Outcome, resume_sync, run_sync
from interlock.engine.client import Client, RunRow
from interlock.engine.read.shared_folders import shared_folder_lines
from interlock.engine.travel.fork import fork_run
from interlock.services.files import filesystem
from interlock.state.events import ErrorEvent
from interlock.state.workspace import OpenDirEntry

READ = says("read_file", file_path="a.py")
THEIRS = "x = 1\ny = 2\n# theirs\n"


def replace(old: str, new: str, **more: Any) -> dict[str, Any]:
    return says("replace", file_path="a.py", old_string=old, new_string=new, **more)


def diff(*blocks: tuple[str, str]) -> dict[str, Any]:
    made = (f"<<<<<<< SEARCH\n:start_line:1\n{old}\n=======\n{new}\n>>>>>>> REPLACE" for old, new in blocks)
    return says("apply_diff", path="a.py", diff="\n".join(made))


class Bench:
    """A desk with one file, whose runs are given replies; each expects what the one before was answered with."""

    def __init__(self, desk: Desk) -> None:
        self.desk, self.file = desk, desk.work / "a.py"
        self.file.write_text("x = 1\ny = 2\n")
        self.replies: list[dict[str, Any]] = []

    def run(self, *replies: dict[str, Any], workflow: str = "main", **more: Any) -> Outcome:
        self.replies = [*replies]
        options = self.desk.options(self.replies, **more)
        return self._check(run_sync(workflow, {"prompt": "Do it."}, options=options))

    def go_on(self, run: str, *replies: dict[str, Any], **more: Any) -> Outcome:
        self.replies += replies
        options = self.desk.options(self.replies, approval_mode=None, **more)
        return self._check(resume_sync(run, prompt="Go on.", options=options))

    def _check(self, outcome: Outcome) -> Outcome:
        assert outcome.status == "done", outcome.error
        return outcome


@pytest.fixture
def bench(desk: Desk) -> Bench:
    return Bench(desk)


DONE = {"text": "done"}
REFUSED = (
    r"(?s)'a.py' changed since you last saw it, so nothing was written.*\+# theirs.*send the same call again"
)


def test_a_whole_write_over_what_a_command_made_is_answered_with_the_diff_and_then_is_a_call_like_any_other(
    bench: Bench,
) -> None:
    mine = write("a.py", "x = 9\n")
    bench.run(READ, shell("echo '# theirs' >> a.py"), mine, {"expect": REFUSED, **DONE})
    assert bench.file.read_text() == THEIRS
    bench.run(READ, shell("echo '# more' >> a.py"), mine, mine, {"expect": "Overwrote", **DONE})
    assert bench.file.read_text() == "x = 9\n"


def test_nobody_is_asked_about_it(bench: Bench) -> None:
    """In a mode that asks about edits, the answer comes without a question."""
    bench.run(
        write("a.py", "x = 9\n"),
        {"expect": "exists and you haven't read it.*-x = 1", **DONE},
        approval_mode="default",
    )
    assert bench.file.read_text() == "x = 1\ny = 2\n"


def test_what_was_never_read_isnt_written_over_but_a_new_or_an_empty_file_is_free(bench: Bench) -> None:
    (bench.desk.work / "empty").touch()
    free = [write("new", "1\n"), write("new", "2\n"), write("empty", "3\n")]
    unread = {
        "expect": r"(?s)exists and you haven't read it, so nothing was written. Your call would change:.*-y = 2"
    }
    bench.run(*free, write("a.py", "x = 9\n"), {**unread, **DONE})
    assert [(bench.desk.work / name).read_text() for name in ("new", "empty")] == ["2\n", "3\n"]
    (bench.desk.work / "long").write_text("".join(f"{n}\n" for n in range(100)))
    part = says("read_file", file_path="long", end_line=9)
    bench.run(part, write("long", "1\n"), {"expect": "read only a part of 'long'", **DONE})


def test_a_read_of_the_same_batch_isnt_seen_yet(bench: Bench) -> None:
    both = {"tool_calls": [*READ["tool_calls"], *write("a.py", "x = 9\n")["tool_calls"]]}
    bench.run(both, {"expect": "haven't read it", **DONE})
    own = {"tool_calls": [*write("n", "1\n")["tool_calls"], *write("n", "2\n")["tool_calls"]]}
    bench.run(own, {"expect": "Overwrote 'n'", **DONE})


def test_an_edit_matches_exactly_what_is_there_and_says_so(bench: Bench) -> None:
    said = r"(?s)had changed since you last saw it; the text was matched exactly.*\+# theirs"
    bench.run(READ, shell("echo '# theirs' >> a.py"), replace("x = 1", "x = 3"), {"expect": said, **DONE})
    assert bench.file.read_text() == "x = 3\ny = 2\n# theirs\n"
    nearly = r"(?s)changed since you last saw it, so the text must match exactly.*isn't in 'a.py'.*\+# more"
    bench.run(READ, shell("echo '# more' >> a.py"), replace("x  =  3", "x = 4"), {"expect": nearly, **DONE})
    assert "x = 3" in bench.file.read_text()
    bench.run(
        replace("x  =  3", "x = 4"), {"expect": "You haven't read 'a.py', so its text must match", **DONE}
    )
    bench.run(READ, replace("x  =  3", "x = 4"), {"expect": "Edited", **DONE})
    assert "x = 4" in bench.file.read_text()


def test_blocks_of_a_diff_match_exactly_whatever_line_they_name(bench: Bench) -> None:
    bench.file.write_text("a\n\nb = 1\na\n")
    theirs = says("execute_command", command="sed -i '1i# theirs' a.py")
    ends, task = says("attempt_completion", result="done"), {"workflow": "task", "mode": "code"}
    said = (
        r"(?s)1 of 2 blocks applied \(block 1 at line 4\).*stands at 2 places.*had changed since.*\+# theirs"
    )
    bench.run(READ, theirs, diff(("b = 1", "b = 2"), ("a", "c")), {"expect": said, **ends}, **task)
    assert bench.file.read_text() == "# theirs\na\n\nb = 2\na\n"


def test_it_must_be_one_place_unless_a_number_is_given(bench: Bench) -> None:
    bench.file.write_text("a\na\n")
    many = shell("echo '# theirs' >> a.py")
    for more in ({}, {"expected_replacements": None}):
        bench.run(READ, many, replace("a\n", "b\n", **more), {"expect": "stands 2 times", **DONE})
    bench.run(
        READ, many, replace("a\n", "b\n", expected_replacements=2), {"expect": "2 replacements", **DONE}
    )
    assert bench.file.read_text().startswith("b\nb\n")


def test_a_file_that_a_command_printed_whole_was_read(bench: Bench) -> None:
    bench.run(shell("cat a.py"), write("a.py", "x = 8\n"), {"expect": "Overwrote 'a.py'", **DONE})
    bench.file.write_text("x = 1\ny = 2\n")
    bench.run(shell("head -n 1 a.py"), write("a.py", "x = 9\n"), {"expect": "haven't read it", **DONE})


def test_a_file_of_a_prompt_was_read_unless_a_hook_took_the_prompt_away(bench: Bench) -> None:
    mine = [write("a.py", "x = 8\n"), {"expect": "Overwrote 'a.py'", **DONE}]
    prompt = {"prompt": "Look at @a.py."}
    assert run_sync("main", prompt, options=bench.desk.options(mine)).status == "done"
    (bench.desk.work / ".interlock").mkdir()
    once = "test -e ../once || { touch ../once; echo no >&2; exit 2; }"
    hooks = {"BeforeAgent": [{"hooks": [{"type": "command", "command": once}]}]}
    (bench.desk.work / ".interlock/settings.json").write_text(json.dumps({"hooks": hooks}))
    again = [write("a.py", "x = 9\n"), {"expect": "haven't read it", **DONE}]
    options = bench.desk.options(again, skip_trust=True)
    blocked = run_sync("main", prompt, options=options)
    assert blocked.status == "blocked_by_hook", blocked
    assert resume_sync(blocked.run, prompt="Go on.", options=options).status == "done"


def test_the_next_prompt_tells_what_changed_and_then_it_is_known(bench: Bench) -> None:
    run = bench.run(READ, DONE).run
    bench.file.write_text(THEIRS)
    told = {"expect": r"(?s)changed since you last saw them.*a\.py:.*\+# theirs"}
    bench.go_on(run, {**told, **write("a.py", "x = 9\n")}, {"expect": "Overwrote 'a.py'", **DONE})
    bench.file.write_text("".join(f"{n}\n" for n in range(3000)))
    again = bench.go_on(run, {"expect": r"a\.py: changed", **DONE})
    bench.file.unlink()
    bench.go_on(again.run, {"expect": r"a\.py: removed", **DONE})
    assert "No difference" in bench.desk("replay", run).out


def test_a_fork_knows_what_was_seen_up_to_its_step(bench: Bench) -> None:
    run = bench.run(READ, DONE).run
    known, unknown = (fork_run(bench.desk.home, run, step, in_place=True).run for step in (None, 1))
    bench.go_on(known, write("a.py", "x = 8\n"), {"expect": "Overwrote", **DONE})
    bench.replies = []
    bench.go_on(unknown, write("a.py", "x = 9\n"), {"expect": "haven't read it", **DONE}, DONE)


def test_what_git_ignores_is_not_shown_in_the_answer(bench: Bench) -> None:
    (bench.desk.work / ".git").mkdir()
    (bench.desk.work / ".gitignore").write_text("a.py\n")
    hidden = {"expect": r"(?s)\A(?!.*-x = 1).*exists and you haven't read it.*is ignored by git", **DONE}
    bench.run(write("a.py", "x = 9\n"), hidden)
    bench.run(write("a.py", "x = 9\n"), write("a.py", "x = 9\n"), {"expect": "Overwrote", **DONE})


def test_a_sub_agent_sees_for_itself_and_its_edit_is_news_to_the_caller(bench: Bench) -> None:
    agent = {"agent": "generalist:1.0"}  # its call is the first of the second reply
    theirs = [write("a.py", "x = 8\n"), READ, write("a.py", "x = 8\n"), says("complete_task", result="ok")]
    expected = [{}, {"expect": "haven't read it"}, {}, {}]
    mine = [READ, says("invoke_agent", agent_name="generalist", prompt="Do it.")]
    again = {"expect": r"(?s)changed since you last saw it.*\+x = 8"}
    bench.run(
        *mine,
        write("a.py", "x = 9\n"),
        {**again, **DONE},
        *({**agent, **more, **reply} for more, reply in zip(expected, theirs, strict=True)),
    )


def test_undo_offers_the_version_of_somebody_else_in_between(bench: Bench) -> None:
    mine = [write("a.py", f"x = {n}\n") for n in (7, 8, 9)]
    run = bench.run(READ, mine[0], shell("echo '# theirs' >> a.py"), DONE).run
    bench.file.write_text("# theirs\n")
    bench.go_on(run, mine[1], mine[2], DONE)
    refused = bench.desk("undo", run)
    assert refused.code == 2 and bench.file.read_text() == "x = 9\n"
    offered = re.findall(r"interlock undo \w+ --call (\d+)", refused.err)
    assert "Somebody else changed 'a.py' between two calls" in refused.err and len(offered) == 2, refused.err
    for number in offered:
        assert bench.desk("undo", run, "--call", number).code == 0
    assert bench.file.read_text() == "# theirs\n"


def test_what_commands_and_calls_of_a_program_write_over_unseen_comes_back_by_undo(bench: Bench) -> None:
    run = bench.run(READ, DONE).run
    bench.file.write_text(THEIRS)
    bench.go_on(run, shell("sed -i s/theirs/ours/ a.py"), DONE)
    assert bench.file.read_text() == THEIRS.replace("theirs", "ours")
    assert bench.desk("undo", run, "--call", "2").code == 0 and bench.file.read_text() == THEIRS
    call = {"id": "1", "name": "write_file", "args": {"file_path": "a.py", "content": "x = 9\n"}}
    placed = run_sync("tools", {"calls": [call]}, options=bench.desk.options([]))
    assert bench.file.read_text() == "x = 9\n"
    assert bench.desk("undo", placed.run).code == 0 and bench.file.read_text() == THEIRS


def test_what_is_saved_while_the_edit_is_written_stays(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The moment before the rename: the new text is written beside the file already."""
    write_new_file = filesystem._write_new_file

    def saves_meanwhile(place: OpenDirEntry, data: bytes, *given: int | None) -> None:
        write_new_file(place, data, *given)
        if data.startswith(b"x = 3"):
            bench.file.write_text(THEIRS)

    monkeypatch.setattr(filesystem, "_write_new_file", saves_meanwhile)
    bench.run(READ, replace("x = 1", "x = 3"), {"expect": "changed while the edit waited", **DONE})
    assert bench.file.read_text() == THEIRS
    assert [path.name for path in bench.desk.work.iterdir()] == ["a.py"]


def test_runs_at_work_in_one_folder_name_each_other(bench: Bench) -> None:
    desk = bench.desk
    slow, heard = desk.options([shell("while [ ! -e ../go ]; do sleep 0.05; done"), DONE]), list[Any]()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(run_sync, "main", {"prompt": "Wait."}, options=slow)
        until(lambda: any(row.status == "running" for row in Client.for_this_user().runs()))
        (desk.work / "below").mkdir()
        (script := desk.folder / "second.json").write_text('[{"text": "Hello."}]')
        second = replace_fields(slow, model=f"script:{script}", workspace=desk.work / "below")
        run_sync("main", {"prompt": "Hello."}, options=second, renderers=[heard.append])
        (desk.folder / "go").touch()
        assert first.result().status == "done"
    (line,) = [event.message for event in heard if isinstance(event, ErrorEvent)]
    assert line.startswith(f"Another run works in this folder: {first.result().run} (Wait.). Each sees")


def test_a_list_says_which_runs_share_a_folder() -> None:
    rows = [_row("a", "/w"), _row("b", "/w/below"), _row("c", "/other"), _row("d", "/w", status="done")]
    (line,) = shared_folder_lines([*rows, _row("e", "/other", parent="c", subtask=True)])
    assert line.startswith("Runs b, a work in '/w' at once.")


def _row(run: str, workspace: str, **more: Any) -> RunRow:
    given = {"run": run, "workspace": workspace, "status": "running", **more}
    return RunRow(**{**dict.fromkeys(RunRow._fields), **given})


def test_a_new_time_is_no_change_and_the_models_own_edits_need_no_second_read(bench: Bench) -> None:
    """As reported of other agents: edits were refused after a `touch`, with CRLF, or after the model's own edit."""
    bench.file.write_bytes(b"x = 1\r\ny = 2\r\n")
    plain = {"expect": r"(?s)\A(?!.*(had changed|hadn't read))"}
    edits = [replace("x = 1\ny", "x = 2\ny"), {**plain, **replace("x  =  2", "x = 3")}]
    bench.run(READ, shell("touch a.py"), *edits, {**plain, **write("a.py", "x = 4\n")}, {**plain, **DONE})
    assert bench.file.read_bytes() == b"x = 4\r\n"


def test_what_a_person_changed_in_a_file_that_the_agent_made_comes_with_the_next_prompt(bench: Bench) -> None:
    """As reported: hours later the same conversation wrote its own version again."""
    made = bench.desk.work / "page.css"
    run = bench.run(write("page.css", "a { border-radius: 1px }\n"), DONE).run
    made.write_text("a { border-radius: 9px }\n")
    edit = says("replace", file_path="page.css", old_string="a {", new_string="b {")
    bench.go_on(run, {"expect": r"\+a { border-radius: 9px", **edit}, DONE)
    assert made.read_text() == "b { border-radius: 9px }\n"


def test_undo_of_one_run_leaves_what_another_did(bench: Bench) -> None:
    """As reported: a revert in one session took back what another did in the same folder meanwhile."""
    one = bench.run(write("b.py", "1\n"), DONE).run
    two = bench.run(write("c.py", "2\n"), shell("echo 3 > d.py"), DONE).run
    bench.replies = [write("b.py", "1\n"), DONE]
    bench.go_on(one, write("b.py", "4\n"), DONE)
    assert bench.desk("undo", two).code == 0
    names = {path.name: path.read_text() for path in bench.desk.work.iterdir()}
    assert names == {"a.py": "x = 1\ny = 2\n", "b.py": "4\n"}
