"""fork_server: imports once what runs need, then forks a process for each request that comes through a socket.

It holds no key, setting, store, open file or thread: its prompts go to a script and to nobody, in a folder that it
deletes. The fork alone reads what was handed over: a file (module, arguments, environment, folder), where to tell its
end, and the streams. It ends when no process asks for forks any more, or none did for a minute; what it forked goes on.
"""

import fcntl
import gc
import io
import json
import marshal
import os
import select
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from types import FrameType
from typing import Any, NoReturn, TextIO

from interlock.cli.warm.fork_client import WORD

PROGRAM, _SESSION = "interlock.cli.main", "interlock.cli.session"
"""What is rehearsed and forked, and what is imported beside it: by name, as this room stands below them."""
UNUSED_S = 60.0
MOST = 253
"""Descriptors that the kernel hands over at once."""
_SCRIPTED = "script:script.json"
_SCRIPT = [
    {
        "tool_calls": [
            {"name": "write_file", "args": {"file_path": "a.txt", "content": "one\n"}},
            {"name": "read_file", "args": {"file_path": "a.txt"}},
            {"name": "run_shell_command", "args": {"command": "cat a.txt"}},
        ]
    },
    {"text": "Done."},
]
_REPLIES = {
    "google.genai.types": (
        *("HttpResponse", "GenerateContentResponse", "Candidate", "FunctionCall"),
        "GenerateContentResponseUsageMetadata",
    ),
    "interlock.services.models.script": ("ScriptEntry",),
    "langchain_core.messages": ("AIMessage", "AIMessageChunk"),
    "langchain_core.outputs": ("ChatGenerationChunk", "ChatResult"),
    "openai.types.chat.chat_completion_chunk": ("ChatCompletionChunk", "Choice", "ChoiceDelta"),
}
"""Classes of a model's or a script's reply, whose schemas would take each fork up to 40 ms: the rehearsed prompts keep
none, and most aren't answered."""


def preload_modules_by_rehearsal(with_optional_packages: bool = False) -> None:
    """Import what runs and sessions need, by runs of each kind of model; only modules and their classes are kept.

    `with_optional_packages`: also for packages that are installed and not everybody uses. Raises `RuntimeError`.
    """
    gc.disable()  # as each start does; the rehearsed one turns it on again
    found = with_optional_packages and find_spec("langchain_openai")
    _rehearse_prompt_with_models(_SCRIPTED, "gemini-2.5-pro", *(["openai:any"] if found else []))
    session = import_module(_SESSION)
    parts = (module.name for module in iter_modules(session.__path__, "interlock.cli.session."))
    for name in (*parts, "interlock.services.models.gemini", "interlock.services.secrets.hidden"):
        import_module(name)
    for name, classes in _REPLIES.items():
        for one in classes if found or not name.startswith("openai") else ():
            getattr(import_module(name), one).model_rebuild()
    _clean_up_after_rehearsal()


def run_rehearsal_prompt() -> None:
    """Run a prompt: afterwards a forked process has copies of the pages that runs write to. Raises `RuntimeError`."""
    _rehearse_prompt_with_models(_SCRIPTED)
    _clean_up_after_rehearsal()


def _clean_up_after_rehearsal() -> None:
    from interlock.services.process.supervisor_client import SUPERVISORS

    SUPERVISORS.stop()
    gc.unfreeze()  # else the run's own objects, with the folder that they hold, would stay
    gc.collect()
    gc.freeze()  # otherwise a child's collections copy the pages that it shares with us
    if threading.active_count() > 1:
        raise RuntimeError("an import left a thread behind: what it holds, a forked process never gets")


def _rehearse_prompt_with_models(*models: str) -> None:
    """Run a prompt with each. Raises `RuntimeError` if the first can't."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Path(folder, "told").open("w+") as output,
        socket.socket() as deaf,
    ):
        deaf.bind(("127.0.0.1", 0))
        before, streams = {**os.environ}, (sys.stdout, sys.stderr)
        os.environ.update(_prepare_isolated_environment(folder, f"http://127.0.0.1:{deaf.getsockname()[1]}"))
        sys.stdout, sys.stderr = output, output
        os.chdir(folder)
        try:
            command_line = import_module(PROGRAM).main
            codes = [command_line(["-y", "-p", "warm up", "-m", model]) for model in models]
        finally:
            sys.stdout, sys.stderr = streams
            os.chdir("/")
            os.environ.clear()
            os.environ.update(before)
        if codes[0]:  # the others can't succeed: nobody answers
            output.seek(0)
            raise RuntimeError(f"the run that imports everything failed: {output.read().strip()}")


def _prepare_isolated_environment(folder: str, unanswered_url: str) -> dict[str, str]:
    """Files and variables of a run that reaches nobody."""
    Path(folder, ".interlock").mkdir()
    Path(folder, ".interlock", "settings.json").write_text(
        '{"model": {"retryDelayScale": 0, "fallback": []}}'
    )
    Path(folder, "script.json").write_text(json.dumps(_SCRIPT), encoding="utf-8")
    return {
        "HOME": folder,
        "INTERLOCK_HOME": f"{folder}/state",
        "GEMINI_API_KEY": "nobody's key",
        "GOOGLE_GEMINI_BASE_URL": unanswered_url,
        "OPENAI_API_KEY": "nobody's key",
        "OPENAI_BASE_URL": f"{unanswered_url}/v1",
    }


def close_descriptors_except(kept: set[int]) -> None:
    for number in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208 - names, not paths
        if number not in kept:
            with suppress(OSError):  # the listing's own
                os.close(number)


def adopt_environment_and_run(env: Mapping[str, str], call: Callable[[], int | None]) -> int:
    """Take this environment, and the streams 0, 1 and 2 as Python makes them; returns `call`'s exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    tempfile.tempdir = None
    assert sys.__stdin__ and sys.__stdout__ and sys.__stderr__
    sys.stdin = sys.__stdin__ = open_text_stream(io.FileIO(0, "r", closefd=False), sys.__stdin__)
    sys.stdout = sys.__stdout__ = open_text_stream(io.FileIO(1, "w", closefd=False), sys.__stdout__)
    sys.stderr = sys.__stderr__ = open_text_stream(io.FileIO(2, "w", closefd=False), sys.__stderr__)
    code = 1
    try:
        code = call() or 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def open_text_stream(raw: io.FileIO, like: TextIO) -> io.TextIOWrapper:
    """A stream as Python makes it at start-up."""
    fd = raw.fileno()
    binary = io.BufferedWriter(raw) if raw.writable() else io.BufferedReader(raw)
    by_line = fd == 2 or (fd == 1 and os.isatty(1))
    return io.TextIOWrapper(binary, like.encoding, like.errors, line_buffering=by_line)


def _ignore_signal(_: int, __: FrameType | None) -> None:
    """With a handler, a signal wakes `select`."""


class ForkServer:
    """Forks until nobody asks any more, and reports each process's end."""

    def __init__(self, door: socket.socket) -> None:
        self.door = door
        self._wake, self._waking = os.pipe()
        for end in (self._wake, self._waking):
            os.set_blocking(end, False)
        self._status_pipes: dict[int, int] = {}
        """Process → where its end is told."""

    def serve(self, idle_timeout_s: float) -> None:
        signal.signal(signal.SIGCHLD, _ignore_signal)
        signal.set_wakeup_fd(self._waking, warn_on_full_buffer=False)
        while ready := self.wait_for_input(None if self._status_pipes else idle_timeout_s):
            if self._wake in ready:
                os.read(self._wake, 4096)
                self._report_ended_children()
            if self.door in ready and not self.handle_request():
                return

    def wait_for_input(self, timeout_s: float | None) -> list[Any]:
        """Wait until there is something to read: the door, or that a fork has ended. Nothing: the time is up."""
        return select.select([self.door, self._wake], [], [], timeout_s)[0]

    def handle_request(self) -> bool:
        """Do what is asked; return whether more will be."""
        asked, fds, _, _ = socket.recv_fds(self.door, 1, MOST)
        if asked:
            self.fork_and_report(*fds)
        return bool(asked)

    def fork_and_report(self, status_pipe: int, *fds: int) -> None:
        """`status_pipe`: where to tell the pid, and the end. `fds`: a file with the request, and the streams."""
        with suppress(OSError):  # told by the end of its pipe
            self._status_pipes[self.make_fork(status_pipe, *fds)] = os.dup(status_pipe)
        for fd in (status_pipe, *fds):
            os.close(fd)

    def make_fork(self, *descriptors: int) -> int:
        """Return a new fork, which has got these descriptors."""
        if (pid := os.fork()) == 0:
            self.run_child(*descriptors)
        return pid

    def _report_ended_children(self) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if (told := self._status_pipes.pop(ended[0], None)) is not None:
                    write_word(told, ended[1])
                    os.close(told)

    def run_child(self, status_pipe: int, request_fd: int, *fds: int) -> NoReturn:
        write_word(status_pipe, os.getpid())
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        request_fields: dict[str, Any] = marshal.loads(os.pread(request_fd, os.fstat(request_fd).st_size, 0))
        numbers: list[int] = request_fields["numbers"]
        status_pipe, *moved = (
            fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, max(numbers) + 1) for fd in (status_pipe, *fds)
        )
        for fd, number in zip(moved, numbers, strict=True):
            os.dup2(fd, number)
        close_descriptors_except({*numbers, status_pipe})
        code = 1
        with suppress(OSError):  # the folder is gone
            os.chdir(request_fields["cwd"])
            code = adopt_environment_and_run(
                request_fields["env"], lambda: self.run_request_in_fork(request_fields, status_pipe)
            )
        write_word(status_pipe, (code & 0xFF) << 8)  # the process that forks may be gone
        os._exit(code)

    def run_request_in_fork(self, request: Mapping[str, Any], status_pipe: int) -> int | None:  # noqa: ARG002
        """Run, in the fork, what was requested; returns its exit code."""
        return import_module(request["module"]).main(*request["arguments"])


def write_word(descriptor: int, number: int) -> None:
    with suppress(OSError):  # nobody listens
        os.write(descriptor, number.to_bytes(WORD, sys.byteorder))


def main(socket_descriptor: str) -> None:
    preload_modules_by_rehearsal()
    ForkServer(socket.socket(fileno=int(socket_descriptor))).serve(UNUSED_S)


if __name__ == "__main__":
    main(sys.argv[1])
