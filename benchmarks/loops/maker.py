"""maker: draws the pieces that traces are made of."""

import random
from typing import Any

Event = dict[str, Any]
Round = list[Event]
WORDS = str.split(
    "parser request handler value cache token client module buffer index order user session path config server "
    "record field table column number result error message stream socket thread queue worker task state graph "
    "node edge file line test case branch commit change function method class object string list"
)
VERBS = str.split(
    "reads writes checks opens closes moves parses sends keeps drops counts joins splits returns loads"
)


class Maker:
    """Draws the pieces that traces are made of."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def name(self) -> str:
        return f"{self.rng.choice(WORDS)}_{self.rng.choice(WORDS)}"

    def path(self) -> str:
        return f"src/{self.name()}/{self.name()}.py"

    def sentence(self) -> str:
        parts = []
        for _ in range(self.rng.randint(1, 3)):
            parts.append(
                f"the {self.rng.choice(WORDS)} {self.rng.choice(VERBS)} the {self.rng.choice(WORDS)}"
            )
        return " and ".join(parts).capitalize() + ". "

    def prose(self, sentences: int) -> str:
        return "".join(self.sentence() for _ in range(sentences))

    def call(self, name: str, **args: Any) -> Event:
        return {"type": "tool_call", "name": name, "args": args}

    def said(self, text: str) -> list[Event]:
        """Text split as it streams."""
        size = self.rng.randint(4, 60)
        return [{"type": "content", "text": text[i : i + size]} for i in range(0, len(text), size)]

    def work(self) -> Round:
        """A round of ordinary work."""
        calls = [
            self.call("read_file", file_path=self.path()),
            self.call("grep_search", pattern=self.name()),
            self.call("run_shell_command", command=f"pytest tests/{self.name()}.py"),
            self.call(
                "replace", file_path=self.path(), old_string=self.sentence(), new_string=self.sentence()
            ),
        ]
        return [*self.said(self.prose(self.rng.randint(1, 3))), self.rng.choice(calls)]

    def before(self) -> list[Round]:
        return [self.work() for _ in range(self.rng.randint(0, 12))]
