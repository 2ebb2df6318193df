"""search_corpus: pinned packages to search in, questions with the definitions that answer them, and a small model."""

import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from interlock.tools.code_definitions import Definition, find_definitions

PACKAGES = (
    "boltons==25.0.0",
    "werkzeug==3.1.3",
    "requests==2.32.3",
    "jinja2==3.1.6",
    "click==8.1.8",
    "rich==13.9.4",
)
"""No question asks about the last two: they are there to be found wrongly."""
MODEL = "wordllama==0.4.0.post1"
"""A wheel with a static model (256 dimensions, MIT); nothing else is downloaded."""


class Question(NamedTuple):
    text: str
    path: str
    spans: list[tuple[int, int]]
    """Lines of the definitions that answer it."""

    def answered_by(self, path: str, start: int, end: int) -> bool:
        return path == self.path and any(start <= last and first <= end for first, last in self.spans)


def installed(folder: Path, *packages: str) -> Path:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-compile", "--target", str(folder)]
    subprocess.run([*command, *options, *packages], check=True, stderr=subprocess.DEVNULL)
    return folder


def questions(corpus: Path) -> list[Question]:
    """Raises `LookupError` for a definition that doesn't exist."""
    lines = Path(__file__).with_name("questions.tsv").read_text().splitlines()
    found: list[Question] = []
    for path, symbols, text in (line.split("\t") for line in lines):
        names = _named(corpus / path)
        if missing := [s for s in symbols.split("|") if s not in names]:
            raise LookupError(f"{path} has no {missing}")
        found.append(Question(text, path, [span for s in symbols.split("|") for span in names[s]]))
    return found


def _named(file: Path) -> dict[str, list[tuple[int, int]]]:
    """Dotted name → the lines of each definition with that name."""
    names: dict[str, list[tuple[int, int]]] = {}
    around: list[Definition] = []
    for definition in find_definitions(file.read_bytes(), "python"):
        while around and definition.start > around[-1].end:
            around.pop()
        name = ".".join(d.name for d in (*around, definition))
        names.setdefault(name, []).append((definition.start, definition.end))
        around.append(definition)
    return names


def static_model(folder: Path) -> Path:
    """The wheel's model in model2vec's format."""
    from model2vec import StaticModel
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    wheel = installed(folder / "wheel", MODEL) / "wordllama"
    weights: Any = load_file(wheel / "weights" / "l2_supercat_256.safetensors")
    (vectors,) = weights.values()
    tokenizer = Tokenizer.from_file(str(wheel / "tokenizers" / "l2_supercat_tokenizer_config.json"))
    made = folder / "model"
    StaticModel(vectors.astype("float32"), tokenizer).save_pretrained(made)
    return made
