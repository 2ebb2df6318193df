"""trees: a folder's contents for comparison: bytes, permissions, links, empty folders."""

import os
import stat
from pathlib import Path

from hypothesis import strategies as st

Tree = dict[str, tuple[int, bytes]]
NAMES = ("a", "b.py", "ü", "with space", 'quo"te', "new\nline", "back\\slash", "-n", "Z")
MODES = (0o644, 0o755, 0o600, 0o444, 0o777, 0o640, 0o4755)


def tree_of(folder: Path) -> Tree:
    """Path → mode, and bytes or target."""
    found: Tree = {}
    for path in folder.rglob("*"):
        mode = path.lstat().st_mode
        link, file = stat.S_ISLNK(mode), stat.S_ISREG(mode)
        data = os.fsencode(path.readlink()) if link else path.read_bytes() if file else b""
        found[str(path.relative_to(folder))] = (stat.S_IFLNK if link else mode, data)
    return found


paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
changes = st.lists(
    st.one_of(
        st.tuples(st.just("write"), paths, st.binary(max_size=40)),
        st.tuples(st.just("remove"), paths, st.none()),
        st.tuples(st.just("move"), paths, paths),
        st.tuples(st.just("link"), paths, st.sampled_from(("a", "../b.py", "/nowhere/at/all", "."))),
        st.tuples(st.just("mode"), paths, st.sampled_from(MODES)),
        st.tuples(st.just("folder"), paths, st.none()),
    ),
    max_size=8,
)


def change(root: Path, what: str, name: str, how: object) -> None:
    """Make one change, as a shell would; an impossible one is skipped."""
    path = root / name
    try:
        if what in ("write", "link", "folder"):
            path.parent.mkdir(parents=True, exist_ok=True)
        if what == "write" and isinstance(how, bytes):
            path.write_bytes(how)
        elif what == "link":
            path.symlink_to(str(how))
        elif what == "folder":
            path.mkdir(exist_ok=True)
        elif what == "mode" and isinstance(how, int) and not path.is_symlink():
            path.chmod(how | (0o700 if path.is_dir() else 0))
        elif what == "move":
            (root / str(how)).parent.mkdir(parents=True, exist_ok=True)
            path.rename(root / str(how))
        elif path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()
    except OSError:
        pass
