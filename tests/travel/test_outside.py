"""Nodes' outside calls are either recorded or declared: the path tests run under `nodes_declare_what_they_ask`."""

from pathlib import Path
from typing import get_type_hints

from outside import INSIDE, OUTSIDE, RECORDED, services
from travel.conftest import Desk
from travel.test_every_workflow import OWN

from interlock.engine import run_sync
from interlock.services.trust.decisions import record_trust_decision
from interlock.state.deps import Deps


def test_all_that_nodes_can_ask_is_known_as_outside_or_not() -> None:
    found = services()
    assert found.keys() == get_type_hints(Deps).keys() == {*OUTSIDE, *RECORDED}
    for name, asked in found.items():
        if name not in RECORDED:
            assert asked == OUTSIDE[name] | INSIDE.get(name, frozenset()), name


def test_a_node_that_asks_the_clock_and_doesnt_say_so_is_named(desk: Desk, undeclared: set[str]) -> None:
    file = desk.work / ".interlock" / "workflows" / "look.py"
    file.parent.mkdir(parents=True)
    asks = OWN.replace(
        'Path(runtime.context.info.workspace, "a.py").read_text()', "str(runtime.context.clock.now())"
    )
    file.write_text(asks)
    record_trust_decision(desk.work, Path.home(), trusted=True)
    assert run_sync("look", {}, options=desk.options([{"text": "well"}])).status == "done"
    assert not undeclared
    file.write_text(asks.replace(", nondeterministic=True", ""))
    assert run_sync("look", {}, options=desk.options([{"text": "well"}])).status == "done"
    (named,) = undeclared
    assert named.endswith(".look asks clock.now")
