"""path_patterns: whether a path matches a line of an ignore file, for rules about files."""

from dataclasses import dataclass
from functools import lru_cache

from interlock.services.files.ignore import IgnorePattern, compile_ignore_lines, directories_from_top_through


@dataclass(frozen=True, slots=True)
class PathPattern:
    """A line of an ignore file, relative to a folder: it matches a path if it matches it or a folder above it."""

    folder: str
    """A real path."""
    line: str
    folds_case: bool = False
    """Whether case makes no difference, as a rule that restricts must assume."""

    @property
    def is_usable(self) -> bool:
        """Whether the line means anything; git skips what it can't parse."""
        return bool(_compile_line(self.line, self.folds_case))

    def matches_path(self, path: str) -> bool:
        """Return whether it matches a normalized absolute path; False for the folder itself and all outside."""
        base = self.folder.rstrip("/")
        if not path.startswith(f"{base}/"):
            return False
        levels = directories_from_top_through(self.folder, path)[1:]
        return any(
            pattern.matches_entry(level[len(base) + 1 :], level != path)
            for pattern in _compile_line(self.line, self.folds_case)
            for level in levels
        )


@lru_cache(maxsize=1_000)
def _compile_line(line: str, folds_case: bool) -> tuple[IgnorePattern, ...]:
    return compile_ignore_lines([line], folds_case=folds_case)
