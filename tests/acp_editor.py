"""acp_editor: an editor for tests: starts `interlock acp` on pipes, checks each frame by the protocol's schema, and
answers what it is asked."""

import json
import os
import queue
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from patience import HANG_S
from scripted import says
from warm import Warm

Frame = dict[str, Any]
Person = Callable[[Frame], Any]
"""Answers a request of the agent by its params: a result; None leaves it open; `RefusalError` is an error."""

_ANSWERS = {
    "initialize": "InitializeResponse",
    "session/new": "NewSessionResponse",
    "session/load": "LoadSessionResponse",
    "session/resume": "ResumeSessionResponse",
    "session/fork": "ForkSessionResponse",
    "session/list": "ListSessionsResponse",
    "session/prompt": "PromptResponse",
    "session/set_config_option": "SetSessionConfigOptionResponse",
}
_ASKED = {
    "session/update": "SessionNotification",
    "session/request_permission": "RequestPermissionRequest",
    "elicitation/create": "CreateFormSessionElicitationRequest",
    "fs/read_text_file": "ReadTextFileRequest",
    "fs/write_text_file": "WriteTextFileRequest",
    "$/cancel_request": "CancelRequestNotification",
}
"""Names in the protocol's schema, by method."""


def checked(name: str, value: Any) -> None:
    """Raises `ValidationError`. The schema takes long to import, and most workers run no test of the protocol."""
    from acp import schema

    getattr(schema, name).model_validate(value)


class RefusalError(Exception):
    """An error that the editor answers with: code and message."""


def option(kind: str) -> Person:
    """A person who takes the first option of this kind."""

    def answer(params: Frame) -> Frame:
        found = next(o["optionId"] for o in params["options"] if o["kind"] == kind)
        return {"outcome": {"outcome": "selected", "optionId": found}}

    return answer


ALLOWS, REJECTS = option("allow_once"), option("reject_once")


def open_question(params: Frame) -> None:
    """Leaves a permission open."""


WRITE, DONE = says("write_file", file_path="a.txt", content="one\n"), {"text": "Done."}


class FailedError(Exception):
    def __init__(self, error: Frame) -> None:
        super().__init__(error["message"])
        self.code, self.error = error["code"], error


class Editor:
    """One connection. `person` answers permissions; `files` what else is asked, by method."""

    def __init__(self, folder: Path, *arguments: str, person: Person = ALLOWS, **env: str) -> None:
        self.folder, self.person = folder, person
        self.others: dict[str, Person] = {}
        self.updates: list[Frame] = []
        """Each update, in order, of all sessions."""
        self.asked: list[tuple[str, Frame]] = []
        self.withdrawn: list[int] = []
        self.frames = 0
        self.stray: list[Frame] = []
        """Answers with an id that nobody asked with."""
        read, self._pipe = os.pipe()
        self.process = Warm(
            ["acp", *arguments], cwd=folder, env={**os.environ, **env}, stdin=read, stdout=subprocess.PIPE
        )
        os.close(read)
        assert self.process.stdout
        self._came: queue.Queue[Frame | None] = queue.Queue()
        self._answers: dict[int, Frame] = {}
        self._last = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        with self.process.stdout as lines:
            for line in lines:
                self._came.put(json.loads(line))
        self._came.put(None)

    def raw(self, line: bytes) -> None:
        os.write(self._pipe, line + b"\n")

    def send(self, method: str, params: object = None, **more: Any) -> None:
        frame = {"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params}), **more}
        self.raw(json.dumps(frame).encode())

    def begin(self, method: str, params: object = None) -> int:
        self._last += 1
        self.send(method, params, id=self._last)
        return self._last

    def call(self, method: str, params: object = None) -> Any:
        return self.answer(self.begin(method, params), method)

    def answer(self, number: int, method: str = "") -> Any:
        """Wait for the answer to a request. Raises `FailedError`."""
        self.until(lambda: number in self._answers)
        frame = self._answers.pop(number)
        if "error" in frame:
            raise FailedError(frame["error"])
        if method in _ANSWERS:
            checked(_ANSWERS[method], frame["result"])
        return frame["result"]

    def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            frame = self._came.get(timeout=HANG_S)
            assert frame is not None, "the agent has left"
            self.frames += 1
            self._take(frame)

    def _take(self, frame: Frame) -> None:
        assert frame.get("jsonrpc") == "2.0", frame
        method = frame.get("method")
        if method is None:
            known = isinstance(frame["id"], int) and 0 < frame["id"] <= self._last
            if known:
                self._answers[frame["id"]] = frame
            else:
                self.stray.append(frame)
            return
        assert method in _ASKED, frame
        checked(_ASKED[method], frame["params"])
        if method == "session/update":
            self.updates.append(frame["params"]["update"])
        elif method == "$/cancel_request":
            self.withdrawn.append(frame["params"]["requestId"])
        else:
            self.asked.append((method, frame))
            person = self.others.get(method, self.person)
            try:
                result = person(frame["params"])
            except RefusalError as error:
                self.reply(frame["id"], error={"code": error.args[0], "message": error.args[1]})
                return
            if result is not None:
                self.reply(frame["id"], result=result)

    def reply(self, number: int, **answer: Any) -> None:
        self.raw(json.dumps({"jsonrpc": "2.0", "id": number, **answer}).encode())

    def initialize(self, **capabilities: Any) -> Frame:
        return self.call("initialize", {"protocolVersion": 1, "clientCapabilities": capabilities})

    def new(self, **more: Any) -> str:
        params = {"cwd": str(self.folder), "mcpServers": [], **more}
        return str(self.call("session/new", params)["sessionId"])

    def load(self, session: str, method: str = "session/load") -> Frame:
        return self.call(method, {"sessionId": session, "cwd": str(self.folder), "mcpServers": []})

    def prompt(self, session: str, *blocks: str | Mapping[str, Any]) -> str:
        """Returns why the turn stopped."""
        return str(self.call("session/prompt", prompted(session, *blocks))["stopReason"])

    def kinds(self) -> list[str]:
        return [update["sessionUpdate"] for update in self.updates]

    def text(self, kind: str = "agent_message") -> str:
        """Everything said in chunks of a kind."""
        found = (u for u in self.updates if u["sessionUpdate"] == f"{kind}_chunk")
        return "".join(update["content"]["text"] for update in found)

    def calls(self) -> dict[str, Frame]:
        """Each call as the client shows it: announced, then changed."""
        found: dict[str, Frame] = {}
        for update in self.updates:
            if update["sessionUpdate"] == "tool_call":
                assert update["toolCallId"] not in found, "announced twice"
                found[update["toolCallId"]] = {**update}
            elif update["sessionUpdate"] == "tool_call_update":
                found[update["toolCallId"]].update(update)
        return found

    def leave(self) -> int:
        """Close stdin; returns the exit code."""
        os.close(self._pipe)
        code = self.process.wait(HANG_S)
        self._reader.join(HANG_S)
        return code

    def kill(self) -> None:
        self.process.kill()
        self.leave()


def prompted(session: str, *blocks: str | Mapping[str, Any]) -> Frame:
    made = [{"type": "text", "text": block} if isinstance(block, str) else {**block} for block in blocks]
    return {"sessionId": session, "prompt": made}
