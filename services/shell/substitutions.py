"""substitutions: `$name`, `${…}`, `$(…)`, backquotes and `<(…)` of the parse tree."""

import re
from typing import TYPE_CHECKING

from interlock.services.shell import expansions

if TYPE_CHECKING:
    from tree_sitter import Node

    from interlock.services.shell.walker import Walker

_VARIABLE = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|\d+|[@*#?$!-])")
_HEREDOC_PARTS = {"<<", "<<-", "heredoc_start", "heredoc_body", "heredoc_end"}


def expansion(walk: "Walker", node: "Node") -> None:
    source = walk.text[expansions.start_of(node, walk.text) : node.end_byte]
    problem = expansions.braces_problem(source)
    if problem is not None:
        walk.doubt(problem)
    if expansions.closes_early(node, walk.text):
        walk.doubt("braces within an expansion")
    name = expansions.assigned_by(source)
    if name is not None:
        walk.sets(name, None)
        walk.assigns(name, source)
    walk.inside(node)


def simple_expansion(walk: "Walker", node: "Node") -> None:
    if _VARIABLE.fullmatch(walk.text, expansions.start_of(node, walk.text), node.end_byte) is None:
        walk.doubt("a variable that can't be read")


def substitution(walk: "Walker", node: "Node") -> None:
    source = walk.source(node)
    if source.lstrip().startswith("`") and "\\" in source:
        walk.doubt("escapes within backquotes")
    if "<<" in source and not _only_heredoc(node):
        # Bash 5.2 writes a substitution anew from what it parsed, and with here-documents comes to other commands.
        walk.doubt("a here-document among other commands of a substitution")
    walk.children(node)


def _only_heredoc(node: "Node") -> bool:
    """`$(cat <<E … E)` and nothing more."""
    statements = [child for child in node.children if child.is_named]
    if len(statements) != 1 or statements[0].type != "redirected_statement":
        return False
    kinds = [child.type for child in statements[0].children]
    parts = [
        c.type for child in statements[0].children if child.type == "heredoc_redirect" for c in child.children
    ]
    return kinds == ["command", "heredoc_redirect"] and set(parts) <= _HEREDOC_PARTS
