"""travel: from one run of a conversation to another, or to an earlier place of this one, with the files or without."""

from asyncio import to_thread
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from interlock.engine.client import Client
from interlock.engine.read import RunRow
from interlock.state.errors import UserError

if TYPE_CHECKING:
    from interlock.engine.client.conversation import Conversation
    from interlock.engine.client.file_changes import FileChange

_FIRST = ("waiting", "interrupted")
"""Statuses of unfinished runs, which are offered first."""


def list_workspace_runs(conversation: "Conversation") -> list[RunRow]:
    """This workspace's runs: unfinished ones first, then the newest; a subtask is continued by its parent."""
    rows = conversation.client.runs(workspace=str(conversation.workspace))
    there = {row.run for row in rows}
    tops = [row for row in rows if not (row.workflow == "task" and row.parent in there)]
    return sorted(tops, key=lambda row: row.status not in _FIRST)


def read_conversation_texts(conversation: "Conversation", run: str) -> list[str]:
    """What a person and the model said in a run."""
    messages = conversation.client.read_messages(run, conversation.client.unmasked_state(run))
    return [
        m.text
        for m in messages
        if m.text
        and (m.role == "assistant" or m.origin in (None, "person"))
        and m.role not in ("system", "tool")
    ]


def start_new_conversation(conversation: "Conversation") -> None:
    left = conversation.run
    conversation.switch_run(None)
    conversation.send_notice("new", "A new conversation.", left or "")


async def start_in_worktree(conversation: "Conversation", name: str) -> None:
    """Start a new conversation in a git worktree; `name` empty: a new one. Raises `UserError`."""
    conversation.switch_run(None)
    here = Client(replace(conversation.options, workspace=conversation.workspace))
    entered = await to_thread(here.enter_worktree, name)
    assert entered is not None
    conversation.move_to_worktree(entered)
    conversation.send_notice("chosen", "\n".join([*entered.notes, "A new conversation begins there."]))


def switch_to_run(conversation: "Conversation", name: str) -> None:
    """Go on with another run of this workspace. Raises `UserError`."""
    row = conversation.client.find_run(name, conversation.workspace)
    if row.workspace != str(conversation.workspace):
        raise UserError(
            f"Run {row.run!r} works in {row.workspace!r}. Go on with it there: interlock -r {row.run}"
        )
    if row.status == "running":
        raise UserError(
            f"Run {row.run!r} is driven by {row.owner}, another terminal. Stop it first: interlock cancel {row.run}"
        )
    conversation.switch_run(row.run)


async def fork_conversation(conversation: "Conversation") -> None:
    """Go on in a second run that shares all of this one's past, in the same folder."""
    run = conversation.required_run
    made = await to_thread(lambda: conversation.client.fork_run(run, in_place=True))
    conversation.switch_run(made.run)
    conversation.send_notice("forked", f"This is run {made.run}, forked from {run}.", run)


class PastPrompt(NamedTuple):
    """A place to go back to."""

    text: str
    before: int | None
    """The last step before the prompt; None: the run began with it."""


def list_prompts(conversation: "Conversation") -> list[PastPrompt]:
    """The run's prompts, newest first. Raises `UserError` if there is none."""
    run, found = conversation.required_run, list[PastPrompt]()
    taken = conversation.client.checkpoints(run)
    for place, (checkpoint, opened) in enumerate(pairwise(taken)):
        if checkpoint.source == "input" and (
            said := conversation.client.read_messages(run, opened.values, "prompt")
        ):
            found.append(PastPrompt(said[-1].text, taken[place - 1].step if place else None))
    if not found:
        raise UserError(f"Run {run!r} has no prompt to go back to. See its steps: /history")
    return found[::-1]


async def rewind_conversation(
    conversation: "Conversation",
    before_step: int | None,
    confirm_changes: "Callable[[Sequence[FileChange]], Awaitable[bool]]",
) -> bool:
    """Go back to a step, with the files, if the person agrees to what changes; None: to before the run began."""
    run = conversation.required_run
    found = await to_thread(lambda: conversation.client.plan_rewind(run, before_step))
    if not await confirm_changes(found.changes):
        conversation.send_notice("unchanged", "Nothing was changed.")
        return False
    made = await to_thread(found.restore_files_and_fork)
    conversation.switch_run(made and made.run)
    conversation.send_notice("back", "Back before that prompt.", run)
    return True


async def undo_changes(conversation: "Conversation", call: str | None) -> "Sequence[FileChange]":
    """Take back what this run, or one call, did to the files; the model hears of it. Raises `UserError`."""
    run = conversation.required_run
    return await to_thread(lambda: conversation.client.undo_changes(run, call))


def compress_conversation(conversation: "Conversation") -> None:
    """Compress the conversation now, instead of a prompt. Raises `UserError` before anything has run."""
    run, head = (
        conversation.required_run,
        lambda: conversation.client.masked_state(conversation.required_run).get("head"),
    )

    async def compressed() -> None:
        before = head()
        conversation.options = replace(conversation.options, compress=True)
        await conversation.resume_run()
        if conversation.run == run and head() == before:
            conversation.send_notice("unchanged", "Nothing was compressed: the conversation is too short.")

    conversation.run_exclusively(compressed)


def newest_model_text(conversation: "Conversation") -> str:
    """The model's newest text; empty if there is none."""
    run = conversation.required_run
    messages = conversation.client.read_messages(run, conversation.client.masked_state(run))
    return next((m.text for m in reversed(messages) if m.role == "assistant" and m.text.strip()), "")


def compare_replay_with_record(client: "Client", run: str, swap: str | None = None) -> dict[str, Any]:
    """Replay a run; each step with the nodes on both sides, and whether nodes and state are the same.

    Raises `UserError`.
    """
    made = client.replay_run(run, swap=swap)
    pairs = zip_longest(made.recorded, made.points)
    return {
        "steps": [
            {
                "step": (old or new).step,
                "recorded": old.nodes if old else None,
                "replayed": new.nodes if new else None,
                "same": bool(old and new and (old.nodes, old.state) == (new.nodes, new.state)),
            }
            for old, new in pairs
        ],
        "divergence": made.divergence,
        "recorded_s": made.recorded_s,
        "replayed_s": made.replayed_s,
    }
