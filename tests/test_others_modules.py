"""Nothing of the product assigns to, deletes from or executes another package's module: the list below only shrinks.

Seen are targets of assignments and deletions, `setattr` and `delattr`, calls that change what a module holds
(`sys.modules.pop`), and whatever runs code that isn't imported. A name counts as another package's if an import binds
it, or a plain alias of such a name, or a loop over such names. An object that the code made or was given doesn't.
"""

import ast
from collections.abc import Iterator

from test_layout import MODULES, ROOT, tree

OFFERED = (
    *("os.environ", "os.environb", "sys.argv", "sys.path", "tempfile.tempdir"),
    *("sys.stdin", "sys.stdout", "sys.stderr", "sys.__stdin__", "sys.__stdout__", "sys.__stderr__"),
)
"""What Python documents as a program's own to change: its environment, arguments, streams and folders."""
_HOOKLESS = "LangGraph has no hook for it, and its version is pinned"
LEFT = {
    "engine/workflows.py: exec()": "runs the user's own file, which is what it is for",
    "engine/workflows.py: sys.modules[made.__name__]": "the user's own file, under a name that nobody else has",
    "engine/graph_files.py: exec()": "runs the user's own file, which is what it is for",
    "engine/graph_files.py: module_from_spec()": "the user's own file",
    "engine/graph_files.py: sys.modules[name]": "the user's own file, under a name that nobody else has",
    "graphs/langgraph_internals.py: ids._last_v6_timestamp": "checkpoint ids sort by it after the clock stepped back",
    "graphs/langgraph_internals.py: _interrupt.__code__": "nodes have imported `interrupt` by name; "
    + _HOOKLESS,
    "graphs/langgraph_internals.py: FunctionType()": "`interrupt` as it is outside a drive",
    "graphs/langgraph_internals.py: loop._put_checkpoint_fut": "a graph without a saver in one that saves at once",
    "graphs/stored_values.py: FunctionType()": "tuples inside objects are stored as tuples; " + _HOOKLESS,
    "graphs/foreign_callbacks.py: own._generate_with_cache": "LangChain has no hook for a model that can't stream",
    "graphs/foreign_callbacks.py: own._agenerate_with_cache": "LangChain has no hook for a model that can't stream",
    "graphs/foreign_callbacks.py: own._run_one": _HOOKLESS,
    "graphs/foreign_callbacks.py: own._arun_one": _HOOKLESS,
}
"""`file: what is changed or run` → why it is left."""
_CHANGES = frozenset(
    {"append", "insert", "extend", "update", "setdefault", "pop", "clear", "remove", "add", "discard"}
)
_RUNS = frozenset(
    {
        *("exec", "eval", "exec_module", "load_module", "run_path", "run_module", "module_from_spec"),
        "FunctionType",
    }
)
_SETS = frozenset({"setattr", "delattr", "__setattr__", "__delattr__"})
_IMPORTS = frozenset({"import_module", "__import__"})


def _called(node: ast.expr) -> str:
    """Return the last name of what is called, else an empty string."""
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    return getattr(function, "attr", "") or getattr(function, "id", "")


def _is_others(node: ast.expr, others: set[str]) -> bool:
    """Return whether an expression is another package's module, or a part of one, reached without a call of it."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    if _called(node) == "cast" and isinstance(node, ast.Call) and node.args[1:]:
        return _is_others(node.args[1], others)
    if _called(node) in ("vars", "type") and isinstance(node, ast.Call) and node.args:
        return _called(node) == "type" or _is_others(node.args[0], others)
    return _called(node) in _IMPORTS or (isinstance(node, ast.Name) and node.id in others)


def _imported(module: ast.Module) -> tuple[set[str], set[str]]:
    """Return the names that a module imports from ours, and from others."""
    ours, others = set[str](), set[str]()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            for one in node.names:
                (ours if _is_ours(one.name) else others).add(one.asname or one.name.partition(".")[0])
        elif isinstance(node, ast.ImportFrom):
            found = ours if _is_ours(node.module or "") else others
            found |= {one.asname or one.name for one in node.names}
    return ours, others


def _with_aliases(module: ast.Module, others: set[str]) -> set[str]:
    found = {*others}
    for node in ast.walk(module):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value and _is_others(node.value, others):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.For) and isinstance(node.iter, ast.Tuple | ast.List):
            some = any(_is_others(one, others) for one in node.iter.elts)
            found |= {node.target.id} if some and isinstance(node.target, ast.Name) else set()
    return found


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] == "interlock"


def _targets(node: ast.AST) -> Iterator[ast.Attribute | ast.Subscript]:
    if isinstance(node, ast.Assign | ast.Delete):
        found = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For | ast.AsyncFor | ast.NamedExpr):
        found = [node.target]
    elif isinstance(node, ast.withitem):
        found = [node.optional_vars] if node.optional_vars else []
    else:
        found = []
    for target in found:
        yield from (one for one in ast.walk(target) if isinstance(one, ast.Attribute | ast.Subscript))


def changed(module: ast.Module) -> Iterator[str]:
    """Yield what a module changes of others' modules, and how it runs code that it doesn't import."""
    ours, others = _imported(module)
    others = _with_aliases(module, others)
    for node in ast.walk(module):
        for target in _targets(node):
            what = ast.unparse(target)
            is_changed = isinstance(target.ctx, ast.Store | ast.Del) and _is_others(target, others)
            if is_changed and not what.startswith(OFFERED):
                yield what
        if not isinstance(node, ast.Call):
            continue
        if what := _by_call(node, ours, others):
            yield what


def _by_call(node: ast.Call, ours: set[str], others: set[str]) -> str:
    """Return what a call changes of others' modules or runs; empty: nothing."""
    name = _called(node)
    of = node.func.value if isinstance(node.func, ast.Attribute) else None
    if name in _RUNS and name not in ours:
        return f"{name}()"
    if name in _SETS and node.args and _is_others(node.args[0], others):
        return f"{name}({ast.unparse(node.args[0])})"
    if name in _CHANGES and isinstance(of, ast.Attribute) and _is_others(of, others):
        what = ast.unparse(of)
        return "" if what.startswith(OFFERED) else f"{what}.{name}()"
    return ""


def test_no_module_of_another_package_is_assigned_to_deleted_from_or_executed() -> None:
    found = {
        f"{path.relative_to(ROOT).as_posix()}: {what}" for path in MODULES for what in changed(tree(path))
    }
    assert not found - {*LEFT}, "use what the package offers: " + ", ".join(sorted(found - {*LEFT}))
    assert not {*LEFT} - found, "gone, so take it off the list: " + ", ".join(sorted({*LEFT} - found))


_SURGERY = """
import sys, others, dataclasses
from others import Kept, part
from importlib import import_module
from interlock.state import text

def patch():
    others.value = 1
    part.deep.value += 1
    del others.value
    alias: object = part.deep
    alias.value = 1
    sys.modules["others"] = text
    sys.meta_path.insert(0, text)
    import_module("others").value = 1
    vars(others)["value"] = 1
    setattr(Kept, "value", 1)
    cast(Any, Kept).value = 1
    for one in (Kept, part):
        one.value = 1
    FunctionType(part.run.__code__, {})
    exec("value = 1", vars(others))
    Kept.value, text.value = 1, 1
    type(text).value = 1

def use():
    made = Kept()
    made.value = others.value
    setattr(made, "value", 1)
    object.__setattr__(made, "value", 1)
    made.values.append(part.deep)
    text.value = sys.modules["others"]
    sys.stdout = made
"""


def test_the_look_sees_each_way_to_change_others_and_takes_nothing_else_for_one() -> None:
    assert sorted(changed(ast.parse(_SURGERY))) == sorted(
        [
            *("others.value", "part.deep.value", "others.value", "alias.value", "sys.modules['others']"),
            *("sys.meta_path.insert()", "import_module('others').value", "vars(others)['value']"),
            *("setattr(Kept)", "exec()", "Kept.value", "type(text).value"),
            *("cast(Any, Kept).value", "one.value", "FunctionType()"),
        ]
    )
