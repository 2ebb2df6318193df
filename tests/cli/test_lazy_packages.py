"""A package that is imported lazily gives what it would give otherwise, and imports nothing before it is asked."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from interlock.cli.lazy_packages import import_lazily

_FILES = {
    "__init__": (
        "from __future__ import annotations\n"
        "import json\n"
        "from .plain import Plain, Other as Renamed\n"
        "from .same import same\n"
        "from .starred import *\n"
        "try:\n    from lazily.tried import Tried\nexcept ImportError:\n    Tried = None\n"
    ),
    "plain": "class Plain: ...\nclass Other: ...\n",
    "same": "def same(): return 'a function'\n",
    "starred": "class Starred: ...\n",
    "tried": "class Tried: ...\n",
    "sub/__init__": "from ..plain import Plain\nfrom .deep import Deep\n",
    "sub/deep": "from .. import Renamed\nclass Deep(Renamed): ...\n",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "lazily" / "sub").mkdir(parents=True)
    for name, text in _FILES.items():
        (tmp_path / "lazily" / f"{name}.py").write_text(text)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    import_lazily("lazily")
    yield "lazily"
    for name in [name for name in sys.modules if name.partition(".")[0] == "lazily"]:
        del sys.modules[name]


def read() -> set[str]:
    return {name.removeprefix("lazily.") for name in sys.modules if name.startswith("lazily.")}


def test_a_module_is_imported_when_a_name_of_it_is_asked_for(package: str) -> None:
    made = import_module(package)
    assert read() == {"same", "starred"}, "a name that is a module's, too, and stars are imported at once"
    assert made.Plain is sys.modules["lazily.plain"].Plain and made.Plain is vars(made)["Plain"]
    assert made.Renamed is sys.modules["lazily.plain"].Other
    assert read() == {"same", "starred", "plain"}
    assert import_module("lazily.sub").Deep.__mro__[1] is made.Renamed
    assert import_module("lazily.sub").Plain is made.Plain, "its parent's modules aren't its own"


def test_a_lazy_package_gives_what_it_would_give_otherwise(package: str) -> None:
    made = import_module(package)
    import_module("lazily.same")
    assert made.same() == "a function"
    assert {"Plain", "Renamed", "Starred", "Tried", "json"} <= {*dir(made)}
    space: dict[str, object] = {}
    exec("from lazily import *", space)
    assert space["Tried"] is made.Tried is sys.modules["lazily.tried"].Tried
    with pytest.raises(ImportError, match="cannot import name 'Missing' from 'lazily'"):
        exec("from lazily import Missing")
