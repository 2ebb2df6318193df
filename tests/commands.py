"""commands: what a command line in this process gave back."""

import json
from typing import Any, NamedTuple, Protocol


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


class Run(Protocol):
    def __call__(self, *arguments: str, stdin: str = "") -> Done: ...
