"""swap: another node function, out of a file of the user's, in a replay."""

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from interlock.engine.driver.compose import DriveServices
from interlock.engine.store.steps import StepLog
from interlock.engine.workflows import executed, line_of
from interlock.graphs._pipeline import Node, Pipeline
from interlock.graphs._rewired import with_node
from interlock.state.errors import ConfigError, SetupError, UserError
from interlock.state.node import spec_of

_FORM = "expected NODE=FILE.py:FUNCTION, as in: --swap draft=new.py:draft"


@dataclass
class Swap:
    """One node's function, from a step on."""

    place: str
    """As `with_node` takes it."""
    function: Node
    source: str
    since: int | None = None
    """A root step: what leads to it is still done by the workflow's own function. None: from the beginning."""
    _steps: StepLog | None = None

    def workflow(self, chosen: Pipeline) -> Pipeline:
        """Raises `UserError` where it doesn't fit."""
        try:
            return with_node(chosen, self.place, self.function, self._due)
        except SetupError as error:
            raise UserError(f"{self.source} doesn't fit {chosen.name!r}: {error}") from error

    def services(self, own: DriveServices) -> DriveServices:
        if isinstance(own.deps.steps, StepLog):
            self._steps = own.deps.steps
        return own

    def _due(self) -> bool:
        return self.since is None or self._steps is None or self._steps.root_step >= self.since


def swap_from(text: str, since: int | None) -> Swap:
    """Raises `UserError` for what isn't `NODE=FILE.py:FUNCTION`, `ConfigError` for a file that can't be used."""
    place, _, source = text.partition("=")
    name, _, function = source.rpartition(":")
    if not (place and name and function):
        raise UserError(f"--swap {text!r}: {_FORM}.")
    file = Path(name).expanduser().absolute()
    return Swap(place, _function(file, function), source, since)


def _function(file: Path, name: str) -> Node:
    code = b""
    try:
        code = file.read_bytes()
        found: Any = executed(file, code).__dict__
    except OSError as error:
        raise ConfigError(f"{str(file)!r} can't be read ({error.strerror}); {_FORM}.") from error
    except (Exception, SystemExit) as error:
        what = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ConfigError(f"{file}:{line_of(file, code, error, name)}: {what}.") from error
    if (function := found.get(name)) is not None and callable(function) and spec_of(function):
        return cast(Node, function)
    nodes = [key for key, value in found.items() if callable(value) and spec_of(value)]
    hint = f" Did you mean {near[0]!r}?" if (near := get_close_matches(name, nodes, 1, 0.5)) else ""
    has = ", ".join(nodes) or "none"
    raise ConfigError(f"{file}: no function {name!r} under @node.{hint} It has: {has}.")
