"""submitted: runs on a git repository, whose files no host has until a worker clones it."""

from contextlib import closing
from dataclasses import replace

from interlock.engine.options import Options
from interlock.engine.read import RunRow
from interlock.engine.store import Store, read_options
from interlock.graphs._pipeline import Pipeline
from interlock.services.files.folders import private_directory
from interlock.services.secrets.redaction import SHAPES
from interlock.state.errors import UserError
from interlock.state.repository import Repository, RepositoryError, repository, without_user

WORKER = "worker"
"""The door through which workers drive."""
_FLAGS = {
    "include_directories": "--include-directories",
    "record_to": "--record-responses",
    "fake": "--fake-responses",
    "ide_context": "--ide-context",
}
_NO_FILE = "{what} names a file of this host, and a worker has other files. Leave it out with --repo."


def as_option(text: str, deliver: str) -> dict[str, str]:
    """`Options.repository` for `--repo URL[@REF]`. Raises `UserError`."""
    try:
        found = repository(text)
    except RepositoryError as error:
        raise UserError(f"--repo: {error}") from error
    if SHAPES(found.url) != found.url:
        raise UserError(
            f"--repo: {without_user(found.url)!r} holds a token. Workers use their own credentials."
        )
    return {"url": found.url, "ref": found.ref, "deliver": deliver}


def submitted(options: Options) -> Options:
    """Options of a run that names a repository, in a folder without files. Raises `UserError`."""
    if not options.repository or "at" in options.repository:
        return options
    if not options.queue:
        raise UserError("--repo: a worker clones the repository. Add --detach.")
    if options.workspace is not None:
        raise UserError(_NO_FILE.format(what="-C"))
    for name, flag in _FLAGS.items():
        if getattr(options, name):
            raise UserError(_NO_FILE.format(what=flag))
    if (options.model or "").startswith("script:"):
        raise UserError(_NO_FILE.format(what="-m script:FILE"))
    empty = options.home / "submitted"
    private_directory(empty)
    return replace(options, workspace=empty, skip_trust=False)


def needs_model(chosen: Pipeline, options: Options) -> bool:
    """Whether this host must have a model's key: a run on a repository uses the worker's."""
    return chosen.needs_model and not options.repository


def place_of(options: Options) -> str:
    """What stands for the folder of such a run, until a worker has one."""
    found = options.repository
    return str(Repository(found["url"], found["ref"])) if found and "at" not in found else ""


def check_prompt(store: Store, row: RunRow, prompt: str | None, options: Options) -> None:
    """Raises `UserError` for a prompt that a worker would have to send, or to a run whose files are a worker's."""
    if not prompt or options.door == WORKER:
        return
    if options.queue:
        raise UserError("--detach: a worker takes no prompt. Without it, this process sends the prompt.")
    if not row.queue:
        return
    with closing(store.connect()) as conn:
        found = read_options(conn, row.run).get("repository")
    if found:
        again = Repository(
            found["url"], f"interlock/{row.run}" if found["deliver"] == "branch" else found["ref"]
        )
        raise UserError(
            f"Run {row.run!r} works in a worker's clone, so it takes no prompt from here. Start another on what it "
            f"did: interlock run {row.workflow} --detach --repo {again} '…'"
        )
