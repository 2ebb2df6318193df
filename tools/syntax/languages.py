"""languages: which language a file is written in, by its name, and which grammars are installed."""

from pathlib import PurePath

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
"""Language → the module of its grammar. Wheels that hold it whole: nothing is fetched when a file is parsed."""

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
LANGUAGES = frozenset((*_BY_SUFFIX.values(), *_BY_NAME.values()))
"""Every language by the name that filters take."""


def language_of(path: str | PurePath) -> str | None:
    """By the file's name alone; None: not source text, as far as its name says."""
    pure = PurePath(path)
    return _BY_NAME.get(pure.name.lower()) or _BY_SUFFIX.get(pure.suffix.lower())
