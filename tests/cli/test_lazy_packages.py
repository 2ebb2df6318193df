"""A package that is imported lazily gives what it would give otherwise, and imports nothing before it is asked.

The same holds of what a module takes from others, and of a module's classes.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import pytest
from folders import put

from interlock.cli.lazy_packages import import_late, import_lazily, make_lazily

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
    "kinds/__init__": "",
    "kinds/all": (
        "import time\n"
        "from typing import Union\n"
        "class Base: ...\n"
        "class Part(Base):\n    time.sleep(0.01)\n    class Inner: ...\n    def other(self): return Other()\n"
        "class Other(Base): ...\n"
        "PartOrText = Part\n"
        "PartOrText = None\n"
        "PartOrText = Union[Part, str]\n"
        "class Whole:\n    parts: list[PartOrText]\n"
        "Wholes = Union[Whole, list[PartOrText]]\n"
        "Alias = Whole\n"
        "Wholly = list[list[Whole]]\n"
        "def __getattr__(name): return name if name == 'asked' else missing\n"
    ),
    "kinds/user": (
        "from . import all\n"
        "class User:\n    def take(self, part: all.Part) -> list[all.Wholes]: return [all.Whole()]\n"
    ),
    "taking": (
        "from lazily.plain import Plain, Other as Renamed\n"
        "import lazily.tried\n"
        "def plain(at: Plain): return Plain()\n"
        "def tried(): return lazily.tried.Tried\n"
    ),
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, text in _FILES.items():
        put(tmp_path / "lazily" / f"{name}.py", text)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    import_lazily("lazily")
    import_late({"lazily.taking": ("lazily.plain", "lazily.tried")})
    make_lazily("lazily.kinds.all")
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


def test_what_a_module_takes_from_others_is_imported_when_its_functions_use_it(package: str) -> None:
    taking = import_module("lazily.taking")
    assert not read() & {"plain", "tried"}
    assert type(taking.plain(None)) is sys.modules["lazily.plain"].Plain is taking.Plain
    assert taking.tried() is sys.modules["lazily.tried"].Tried
    assert taking.Renamed is sys.modules["lazily.plain"].Other
    with pytest.raises(AttributeError, match=r"module 'lazily.taking' has no attribute 'Missing'"):
        taking.Missing  # noqa: B018


eager_annotations = pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python looks names up elsewhere")


@eager_annotations
def test_classes_are_made_when_they_are_asked_for_and_annotations_do_not_ask(package: str) -> None:
    user, kinds = import_module("lazily.kinds.user"), sys.modules["lazily.kinds.all"]
    names = {"Base", "Part", "Other", "PartOrText", "Whole", "Wholes", "Alias", "Wholly"}
    assert not names & {*vars(kinds)} and names <= {*dir(kinds)} and names < {*kinds.__all__}
    (whole,) = user.User().take(None)
    assert user.all is kinds and type(whole) is kinds.Whole is kinds.Alias
    assert "Other" not in vars(kinds)
    assert kinds.Whole.__annotations__["parts"] == list[kinds.Part | str]
    assert kinds.Wholes == kinds.Whole | list[kinds.PartOrText] and kinds.Wholly == list[list[kinds.Whole]]
    assert type(kinds.Part().other()) is kinds.Other and kinds.Other.__mro__[1] is kinds.Base
    assert kinds.Part.Inner.__qualname__ == "Part.Inner" and kinds.asked == "asked"
    with pytest.raises(NameError, match="missing"):
        kinds.Missing  # noqa: B018


@eager_annotations
def test_threads_that_ask_at_once_get_one_class(package: str) -> None:
    kinds = import_module("lazily.kinds.all")
    with ThreadPoolExecutor(4) as pool:
        assert len({*pool.map(getattr, [kinds] * 4, ["Part"] * 4)}) == 1


@eager_annotations
@pytest.mark.parametrize(
    "more",
    [
        "Counted.count = 1",
        "at = [Counted]",
        "at = {1: (Counted, 2)}",
        "from typing import List\nat = List[Counted]",
        "from typing import Union, List\nat = Union[List[Counted], str]",
        "from typing import TypeVar\nat = TypeVar('at', bound=Counted)",
        "def at(of=Counted): ...",
        "at = Counted()",
    ],
)
def test_a_module_that_does_more_with_its_classes_is_run_as_it_is(
    package: str, tmp_path: Path, more: str
) -> None:
    (tmp_path / "lazily/kinds/more.py").write_text(f"class Counted: ...\n{more}\n")
    make_lazily("lazily.kinds.more")
    assert isinstance(vars(import_module("lazily.kinds.more"))["Counted"], type)


_DESCRIBE = """
import sys
from enum import Enum
from typing import is_typeddict
from pydantic import BaseModel
BaseModel.model_config["defer_build"] = True
from interlock.cli.lazy_packages import Later
from interlock.cli.lazy_packages import make_lazily

if sys.argv[1] == "lazily":
    make_lazily("google.genai.types")
import google.genai.client
from google.genai import types

names = [name for name in dir(types) if not name.startswith("__")]
made = len(vars(types))
for name in reversed(names):
    getattr(types, name)
if sys.argv[1] == "lazily":
    assert made < len(names) / 2, made
for module in [m for name, m in sys.modules.items() if name.startswith("google.genai")]:
    for name, value in [*vars(module).items()]:
        held = [value, *(vars(value).values() if isinstance(value, type) else ())]
        assert not [one for one in held if isinstance(one, Later)], f"{module.__name__}.{name}"
for name in sorted(names):
    found = getattr(types, name)
    if isinstance(found, type) and issubclass(found, BaseModel):
        found.model_rebuild()
        print(name, found.__mro__, [(key, field.annotation) for key, field in found.model_fields.items()])
    elif isinstance(found, type) and issubclass(found, Enum):
        print(name, [*found])
    elif is_typeddict(found):
        print(name, found.__annotations__)
    else:
        print(name, found)
"""


@pytest.mark.sweep
def test_the_client_of_gemini_has_the_classes_that_it_would_have_otherwise() -> None:
    def described(how: str) -> str:
        command = [sys.executable, "-P", "-c", _DESCRIBE, how]
        ended = subprocess.run(command, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        return re.sub(" at 0x[0-9a-f]+", "", ended.stdout)

    assert described("lazily") == described("otherwise")
