"""repair_files: which file a small model may write to repair what a test finds: no test, unless the task says so."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from interlock.services.checks.test_table import CheckTable

_PLACE = re.compile(
    r"(?:File \"|file://)?((?:\.{0,2}/)?[\w@.+-]+(?:/[\w@.+-]+)*\.\w{1,6})(?:\", line |\(|:)(\d+)"
)
"""Where a traceback, a compiler or a runner names a line of a file."""
_PYTHON = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+([\w, \t]+)|import[ \t]+([\w., \t]+))", re.MULTILINE
)
_SCRIPT = re.compile(r"(?:require\(|import\(|from|import)\s*[\"'](\.{1,2}/[^\"'\n]+)[\"']")
_ENDINGS = ("", ".js", ".ts", ".mjs", ".cjs", ".jsx", ".tsx", "/index.js", "/index.ts")
_CHANGES = (
    r"(?:write|add|change|update|edit|extend|rewrite|adapt|modify|create|delete|remove|replace|rename|port)"
)
_SAYS_SO = re.compile(
    rf"\b{_CHANGES}\w*\b[^.!?\n]{{0,60}}?(?:\b(?:tests?|specs?|fixtures?|snapshots?)\b|(\S*\w\.\w+))",
    re.IGNORECASE,
)
_NOT = re.compile(r"\b(?:don'?t|do not|never|without|not to|must not|no)\b[^.!?\n]{0,30}$", re.IGNORECASE)


@dataclass(frozen=True)
class RepairFiles:
    """The files of a workspace, as a repair sees them."""

    root: Path
    table: CheckTable = field(default_factory=lambda: CheckTable(""))

    def is_test(self, path: str) -> bool:
        """Return whether a path, relative or absolute, is a test or a runner's settings."""
        inside = self.relative_path(path)
        return inside is not None and self.table.is_test_or_settings(inside)

    def is_test_change_requested(self, task: str) -> bool:
        """Return whether a task says that tests are to be written or changed."""
        for found in _SAYS_SO.finditer(task):
            about_tests = found[1] is None or self.is_test(found[1].strip("`'\"(),"))
            if about_tests and not _NOT.search(task[: found.start()]):
                return True
        return False

    def find_modules_to_repair(self, output: str, tests: Mapping[str, str]) -> Sequence[str]:
        """Return the repository's own modules that an output names, innermost first, then those that tests import.

        `tests`: path → text.
        """
        found: list[str] = [path for path, _ in reversed(self.find_named_lines(output))]
        for path, text in tests.items():
            found += [*self._possible_import_paths(path, text)]
        mine = (
            path for path in found if self.table.file_kind(path) == "code" and (self.root / path).is_file()
        )
        return [*dict.fromkeys(mine)]

    def find_named_lines(self, output: str) -> list[tuple[str, int]]:
        """Return the files of the workspace and the lines in them that an output names, in its order."""
        named = ((self.relative_path(path), int(line)) for path, line in _PLACE.findall(output))
        return [(path, line) for path, line in named if path]

    def _possible_import_paths(self, path: str, text: str) -> Iterator[str]:
        folder = PurePosixPath(path).parent
        for module, names, modules in _PYTHON.findall(text):
            wanted = [module, *(f"{module}.{name.split()[0]}" for name in names.split(",") if name.strip())]
            for one in wanted if module else [name.split()[0] for name in modules.split(",") if name.strip()]:
                where = one.strip(".").replace(".", "/")
                yield from (f"{base}{where}{end}" for base in ("", "src/") for end in (".py", "/__init__.py"))
                yield str(folder / f"{where}.py")
        for name in _SCRIPT.findall(text):
            where = str(PurePosixPath(_normalize_path(str(folder / name))))
            yield from (f"{where}{end}" for end in _ENDINGS)

    def relative_path(self, path: str) -> str | None:
        """Return a path relative to the workspace; None: it lies outside."""
        where = PurePosixPath(path)
        if where.is_absolute():
            if not where.is_relative_to(self.root):
                return None
            where = where.relative_to(self.root)
        text = _normalize_path(str(where))
        return None if text.startswith("..") else text


def _normalize_path(path: str) -> str:
    parts: list[str] = []
    for part in path.split("/"):
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)
