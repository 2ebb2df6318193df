"""Two runs and a person change the same files at random: no version is lost without a word."""

import json
import random
from collections.abc import Iterator
from dataclasses import replace as replace_fields
from hashlib import sha256
from typing import Any

import pytest
from patience import sweep_part
from scripted import call, tools
from travel.conftest import Desk

from interlock.engine import resume_sync, run_sync
from interlock.engine.read import find_run
from interlock.engine.read.calls import list_calls
from interlock.engine.run_files import RunFiles
from interlock.engine.store import select_rows
from interlock.engine.store.chain import read_messages_up_to
from interlock.engine.store.checkpoints import read_state_at_step
from interlock.engine.store.snapshots import list_snapshots
from interlock.services.snapshots.snapshots import ShadowRepository
from interlock.state.events import Event, ToolResultEvent

FILES = [f"{n}.txt" for n in range(10)]


class Folder:
    """A folder with ten files, each line of which is unlike any other."""

    def __init__(self, desk: Desk, seed: int) -> None:
        self.desk, self.chance = desk, random.Random(seed)
        self.made = 0
        for name in FILES:
            self.person_writes(name)

    def new_line(self, by: str) -> str:
        self.made += 1
        return f"line {self.made} by {by}"

    def new_text(self, by: str) -> str:
        return "".join(f"{self.new_line(by)}\n" for _ in range(self.chance.randint(1, 4)))

    def lines(self, name: str) -> list[str]:
        return (self.desk.work / name).read_text().splitlines()

    def person_writes(self, name: str) -> None:
        """As editors do: another file takes the name."""
        lines = self.lines(name) if (self.desk.work / name).exists() else []
        lines.insert(self.chance.randint(0, len(lines)), self.new_line("a person"))
        (made := self.desk.work / f"{name}~").write_text("".join(f"{line}\n" for line in lines[-6:]))
        made.replace(self.desk.work / name)

    def any_call(self, by: str) -> dict[str, Any]:
        name, how = self.chance.choice(FILES), self.chance.random()
        path = {"file_path": name}
        if how < 0.3:
            return call("read_file", **path)
        if how < 0.6:
            return call("write_file", **path, content=self.new_text(by))
        if how < 0.9:
            old = self.chance.choice(self.lines(name))
            return call("replace", **path, old_string=old, new_string=self.new_line(by))
        formats = f"echo '{self.new_line('a formatter')}' | tee -a {name} > /dev/null"
        return call("run_shell_command", command=formats)


class Worker:
    """A run that works in the folder, a prompt at a time. A person may write after each of its results."""

    def __init__(self, folder: Folder, name: str) -> None:
        self.folder, self.name, self.replies, self.run = folder, name, list[dict[str, Any]](), ""
        self.script = folder.desk.folder / f"{name}.json"
        self.options = replace_fields(folder.desk.options([]), model=f"script:{self.script}")

    def work(self, turns: int) -> int:
        """Make some calls, in so many turns; returns the number of calls."""
        batches = [
            [self.folder.any_call(self.name) for _ in range(self.folder.chance.randint(1, 2))]
            for _ in range(turns)
        ]
        self.replies += [*(tools(*batch) for batch in batches), {"text": "done"}]
        self.script.write_text(json.dumps(self.replies))
        told = {"renderers": [self.hear]}
        if self.run:
            options = replace_fields(self.options, approval_mode=None)
            outcome = resume_sync(self.run, prompt="Go on.", options=options, **told)
        else:
            outcome = run_sync("main", {"prompt": "Work."}, options=self.options, **told)
        assert outcome.status == "done", outcome.error
        self.run = outcome.run
        return sum(map(len, batches))

    def hear(self, event: Event) -> None:
        if isinstance(event, ToolResultEvent) and self.folder.chance.random() < 0.2:
            self.folder.person_writes(self.folder.chance.choice(FILES))

    def lines_lost_by_calls(self) -> dict[str, set[str]]:
        """Id of each call of a file tool → the lines that were there before it and not after, by its snapshots."""
        home = self.folder.desk.home
        files = RunFiles(home, find_run(home, self.run))
        calls = {one.key: one for one in list_calls(home, self.run)}
        planned = select_rows(home, "select * from journal where run = $1 and planned is not null", self.run)
        hashes = {
            f"{row['message']}.{row['idx']}.{row['attempt']}": json.loads(row["planned"])["before"]
            for row in planned
        }
        lost: dict[str, set[str]] = {}
        for snapshot in list_snapshots(home, self.run):
            made = calls[snapshot.call_key]
            if made.tool == "run_shell_command" or made.status != "success":
                continue
            blobs = [
                files.read_snapshot_contents(commit).files[made.args["file_path"]].blob
                for commit in (snapshot.before, snapshot.after)
            ]
            old, new = ShadowRepository(files.repository_folder).read_blobs(blobs)
            lost[made.id] = {*old.decode().splitlines()} - {*new.decode().splitlines()}
            assert hashes[snapshot.call_key] == sha256(old).hexdigest(), "undo has another version"
        return lost

    def said_with_each_call(self) -> Iterator[tuple[str, set[str]]]:
        """Id of each call → all lines that the conversation holds up to its answer."""
        home, said = self.folder.desk.home, set[str]()
        for message in read_messages_up_to(home, self.run, read_state_at_step(home, self.run)["head"]):
            said |= {line.removeprefix("-").removeprefix("+").strip() for line in message.text.splitlines()}
            for one in message.tool_calls:
                said |= {line for value in one.args.values() for line in str(value).splitlines()}
            if message.tool_call_id:
                yield message.tool_call_id, {*said}


def check_nothing_lost_without_a_word(desk: Desk, seed: int, steps: int) -> None:
    folder = Folder(desk, seed)
    workers = [Worker(folder, "one"), Worker(folder, "two")]
    done = 0
    while done < steps:
        folder.person_writes(folder.chance.choice(FILES))
        done += 1 + folder.chance.choice(workers).work(folder.chance.randint(1, 5))
    wrote = 0
    for worker in workers:
        lost = worker.lines_lost_by_calls() if worker.run else {}
        for name, said in worker.said_with_each_call() if worker.run else ():
            assert not (silent := lost.get(name, set()) - said), (seed, worker.name, name, silent)
        wrote += sum(map(bool, lost.values()))
    assert wrote > steps // 20, "hardly anything was written over"
    assert {path.name for path in desk.work.iterdir()} == {*FILES}


def test_no_version_is_lost_without_a_word(desk: Desk) -> None:
    check_nothing_lost_without_a_word(desk, seed=1, steps=40)


@pytest.mark.sweep(divides=True)
def test_no_version_is_lost_without_a_word_in_a_thousand_steps(desk: Desk) -> None:
    part, of = sweep_part()
    check_nothing_lost_without_a_word(desk, seed=100 + part, steps=1_000 // of)
