"""_syntax: detect a file's language, and find its functions, classes and similar definitions with their lines.

Definitions need the extra `code`: tree-sitter and its grammars.
"""

import time
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tree_sitter import Language, Node, Query, Tree

GRAMMARS = {
    "bash": "tree_sitter_bash",
    "c": "tree_sitter_c",
    "cpp": "tree_sitter_cpp",
    "csharp": "tree_sitter_c_sharp",
    "go": "tree_sitter_go",
    "java": "tree_sitter_java",
    "javascript": "tree_sitter_javascript",
    "kotlin": "tree_sitter_kotlin",
    "php": "tree_sitter_php",
    "python": "tree_sitter_python",
    "ruby": "tree_sitter_ruby",
    "rust": "tree_sitter_rust",
    "tsx": "tree_sitter_typescript",
    "typescript": "tree_sitter_typescript",
}
"""Language → module of its grammar. The wheels are self-contained: parsing downloads nothing."""

_SUFFIXES = {
    "bash": "sh bash",
    "c": "c h",
    "clojure": "clj cljs cljc",
    "cpp": "cc cpp cxx hh hpp hxx ipp cu cuh",
    "csharp": "cs",
    "css": "css scss sass less",
    "dart": "dart",
    "elixir": "ex exs",
    "elm": "elm",
    "erlang": "erl hrl",
    "fsharp": "fs fsi fsx",
    "go": "go",
    "graphql": "graphql gql",
    "groovy": "groovy gradle",
    "haskell": "hs",
    "html": "html htm vue svelte ejs erb jinja j2",
    "ini": "ini cfg",
    "java": "java",
    "javascript": "js jsx mjs cjs",
    "julia": "jl",
    "kotlin": "kt kts",
    "lua": "lua",
    "markdown": "md markdown mdx",
    "nix": "nix",
    "objc": "m mm",
    "ocaml": "ml mli",
    "perl": "pl pm",
    "php": "php",
    "powershell": "ps1 psm1",
    "proto": "proto",
    "python": "py pyi pyx",
    "r": "r",
    "ruby": "rb rake gemspec",
    "rust": "rs",
    "scala": "scala sc",
    "solidity": "sol",
    "sql": "sql",
    "swift": "swift",
    "terraform": "tf hcl",
    "text": "rst adoc txt",
    "toml": "toml",
    "tsx": "tsx",
    "typescript": "ts mts cts",
    "vb": "vb",
    "yaml": "yaml yml",
    "zig": "zig",
}
_BY_SUFFIX = {f".{suffix}": name for name, suffixes in _SUFFIXES.items() for suffix in suffixes.split()}
_BY_NAME = {
    "dockerfile": "dockerfile",
    "makefile": "make",
    "cmakelists.txt": "cmake",
    "gemfile": "ruby",
    "rakefile": "ruby",
    "jenkinsfile": "groovy",
}
EXTRA = "install interlock-agent[code]"
LANGUAGES = frozenset((*_BY_SUFFIX.values(), *_BY_NAME.values()))
"""Every language, by the name that filters use."""


def language_of(path: str | PurePath) -> str | None:
    """Judged by the file's name alone; None: not source code by its name."""
    pure = PurePath(path)
    return _BY_NAME.get(pure.name.lower()) or _BY_SUFFIX.get(pure.suffix.lower())


def installed() -> bool:
    """Whether the extra `code` is installed."""
    return find_spec("tree_sitter") is not None


class Definition(NamedTuple):
    """One definition with its 1-based first and last line."""

    name: str
    """As written; empty if anonymous."""
    start: int
    end: int


_FUNCTIONS = "[(arrow_function) (function_expression) (generator_function)]"
_JAVASCRIPT = f"""
    [(function_declaration) (generator_function_declaration) (class_declaration) (method_definition)] @it
    (variable_declarator value: {_FUNCTIONS}) @it
    (assignment_expression right: {_FUNCTIONS}) @it
    (export_statement) @around
    (lexical_declaration (variable_declarator value: {_FUNCTIONS})) @around
    (variable_declaration (variable_declarator value: {_FUNCTIONS})) @around
    (expression_statement (assignment_expression right: {_FUNCTIONS})) @around
"""
_TYPESCRIPT = f"""{_JAVASCRIPT}
    [(abstract_class_declaration) (interface_declaration) (type_alias_declaration) (enum_declaration)
     (internal_module)] @it
"""
_C = """
    [(function_definition) (type_definition) (preproc_function_def)] @it
    [(struct_specifier body: (_)) (union_specifier body: (_)) (enum_specifier body: (_))] @it
"""
_QUERIES = {
    "bash": "(function_definition) @it",
    "c": _C,
    "cpp": f"""{_C}
        [(class_specifier body: (_)) (namespace_definition) (alias_declaration)] @it
        (template_declaration) @around
    """,
    "csharp": """
        [(class_declaration) (interface_declaration) (struct_declaration) (enum_declaration)
         (record_declaration) (delegate_declaration) (method_declaration) (constructor_declaration)
         (property_declaration) (namespace_declaration)] @it
    """,
    "go": """
        [(function_declaration) (method_declaration) (type_spec)] @it
        (type_declaration) @around
    """,
    "java": """
        [(class_declaration) (interface_declaration) (enum_declaration) (record_declaration)
         (annotation_type_declaration) (method_declaration) (constructor_declaration)] @it
    """,
    "javascript": _JAVASCRIPT,
    "kotlin": "[(function_declaration) (class_declaration) (object_declaration)] @it",
    "php": """
        [(function_definition) (class_declaration) (interface_declaration) (trait_declaration)
         (enum_declaration) (method_declaration)] @it
    """,
    "python": "[(function_definition) (class_definition)] @it (decorated_definition) @around",
    "ruby": "[(method) (singleton_method) (class) (module)] @it",
    "rust": """
        [(function_item) (struct_item) (enum_item) (union_item) (trait_item) (impl_item) (mod_item)
         (type_item) (macro_definition)] @it
    """,
    "tsx": _TYPESCRIPT,
    "typescript": _TYPESCRIPT,
}
"""`@it` is a definition; `@around` a wrapper that belongs to it: decorators, `export`, `const`."""
_MAY_HOLD_SEVERAL = frozenset({"lexical_declaration", "variable_declaration", "type_declaration"})
_NAMED_BY = ("name", "declarator", "left", "type")
"""Fields leading to a definition's name, likeliest first."""
_PIECE = 1 << 16
_LONGEST_S = 2.0
"""CPU seconds for the parser; a typical 1 MiB file takes a fifth."""
_WIDEST = 5_000
"""Sibling nodes in unparsable code: queries are quadratic in them (measured: 100,000 take 8 s)."""


def definitions(source: bytes, language: str) -> list[Definition]:
    """Definitions in textual order, nested ones included; none for languages without a grammar, or without the extra.

    Unparsable parts are skipped: a broken file yields its intact parts, one that takes too long nothing.
    """
    if language not in GRAMMARS or not installed():
        return []
    captured = _captured(*_grammar(language), source)
    around = {
        child.id: outer
        for outer in captured.get("around", [])
        for child in outer.named_children
        if outer.type not in _MAY_HOLD_SEVERAL or outer.named_child_count == 1
    }
    nodes = sorted(captured.get("it", []), key=lambda node: (node.start_byte, -node.end_byte))
    return [definition for node in nodes if (definition := _definition(node, around)).name]


def _captured(grammar: "Language", query: "Query", source: bytes) -> "dict[str, list[Node]]":
    from tree_sitter import Parser, QueryCursor

    until = time.thread_time() + _LONGEST_S

    def late(*_: object) -> bool:
        return time.thread_time() > until

    parser = Parser(grammar)  # a new one: sharing a parser between threads crashes the process
    try:
        tree = parser.parse(lambda at, _: source[at : at + _PIECE], progress_callback=late)
    except ValueError:
        return {}
    if tree.root_node.has_error and _too_wide(tree):
        return {}
    return QueryCursor(query).captures(tree.root_node)


def _too_wide(tree: "Tree") -> bool:
    cursor = tree.walk()
    while True:
        node = cursor.node
        if node is not None and node.is_error and node.child_count > _WIDEST:
            return True
        if cursor.goto_first_child():
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return False


@cache
def _grammar(language: str) -> "tuple[Language, Query]":
    from tree_sitter import Language, Query

    module = import_module(GRAMMARS[language])
    name = {"typescript": "language_typescript", "tsx": "language_tsx", "php": "language_php"}.get(language)
    pointer: object = getattr(module, name or "language")()
    grammar = Language(pointer)
    return grammar, Query(grammar, _QUERIES[language])


def _definition(node: "Node", around: "dict[int, Node]") -> Definition:
    whole = node
    while whole.id in around:  # not `parent`, which searches from the root: 40,000 definitions took 8 s
        whole = around[whole.id]
    end = whole.end_point
    last = end.row if end.column else end.row - 1
    return Definition(_name(node), whole.start_point.row + 1, last + 1)


def _name(node: "Node") -> str:
    """Follow declarators to the identifier, as in `int *(*f)(void)`."""
    while True:
        named = next((found for field in _NAMED_BY if (found := node.child_by_field_name(field))), None)
        if named is None:
            named = next((child for child in node.named_children if child.type.endswith("identifier")), None)
        if named is None and node.type == "parenthesized_declarator":
            named = next(iter(node.named_children), None)
        if named is None or named.text is None:
            return ""
        if named.child_by_field_name("declarator") is None and named.type != "parenthesized_declarator":
            return named.text.decode("utf-8", "replace").partition("\n")[0].strip()
        node = named
