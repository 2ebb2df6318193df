"""A source text's definitions, according to its grammar."""

import tomllib
from pathlib import Path

import pytest

from interlock.tools.code_definitions import (
    detect_language,
    find_definitions,
    grammar_modules,
    load_languages,
)

EXAMPLES = {
    "bash": ("f() { :; }\nfunction g {\n :\n}\n", "f:1-1 g:2-4"),
    "c": (
        "struct s { int a; };\nint *f(int a)\n{\n return 0;\n}\nint (*g(void))(int) { return 0; }\n#define M(a) a\n",
        "s:1-1 f:2-5 g:6-6 M:7-7",
    ),
    "cpp": (
        "namespace n {\ntemplate<class T>\nclass A {\n int m() { return 1; }\n};\n}\n",
        "n:1-6 A:2-5 m:4-4",
    ),
    "csharp": ("class A {\n int P {get;set;}\n A(){}\n void M<T>(){}\n}\n", "A:1-5 P:2-2 A:3-3 M:4-4"),
    "go": ("package a\n\nfunc (s *S) M() {\n}\n\ntype (\n\tA int\n\tB int\n)\n", "M:3-4 A:7-7 B:8-8"),
    "java": ("class A {\n A(){}\n int m(){ return 1; }\n}\n", "A:1-4 A:2-2 m:3-3"),
    "javascript": (
        "export default function f(){}\nconst g = async (x) => {\n return 1\n}\nexports.k = function(){}\n",
        "f:1-1 g:2-4 exports.k:5-5",
    ),
    "kotlin": ("class A {\n fun m() {}\n}\nobject O\n", "A:1-3 m:2-2 O:4-4"),
    "php": ("<?php\nclass A {\n public function m(){}\n}\n", "A:2-4 m:3-3"),
    "python": (
        "@a\n@b\nclass A:\n    @p\n    async def f(self):\n        pass\n\ndef h(:\n    pass\n",
        "A:1-6 f:4-6 h:8-9",
    ),
    "ruby": ("module M\n class A < B\n  def self.n; end\n end\nend\n", "M:1-5 A:2-4 n:3-3"),
    "rust": ("impl A {\n fn m(&self) {}\n}\nstruct S;\n", "A:1-3 m:2-2 S:4-4"),
    "tsx": ("export const App: FC = () => <div/>\n", "App:1-1"),
    "typescript": ("export interface I {\n a: string\n}\nenum E {A}\n", "I:1-3 E:4-4"),
}


@pytest.mark.parametrize("language", grammar_modules())
def test_definitions_have_their_names_and_all_their_lines(language: str) -> None:
    source, expected = EXAMPLES[language]
    found = find_definitions(source.encode(), language)
    assert " ".join(f"{d.name}:{d.start}-{d.end}" for d in found) == expected
    crlf = find_definitions(source.replace("\n", "\r\n").encode(), language)
    assert [d[:3] for d in crlf] == [d[:3] for d in found]


def test_every_grammar_is_declared() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    declared = {
        name.partition(">=")[0].replace("-", "_") for name in project["optional-dependencies"]["code"]
    }
    assert set(grammar_modules().values()) <= declared
    assert set(grammar_modules()) <= load_languages().keys()


@pytest.mark.parametrize(
    ("path", "language"),
    [("src/a.PY", "python"), ("Makefile", "make"), ("x.tsx", "tsx"), (".py", None), ("data.bin", None)],
)
def test_a_language_is_told_by_the_file_name(path: str, language: str | None) -> None:
    assert detect_language(path) == language
