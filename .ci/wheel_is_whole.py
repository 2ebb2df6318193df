"""wheel_is_whole: every file of the rooms is in the wheel, and nothing else is."""

import sys
import zipfile
from pathlib import Path


def main(source: Path, wheel: Path) -> str:
    """What is wrong, empty when nothing is."""
    files = (p for marker in source.glob("*/py.typed") for p in marker.parent.rglob("*"))
    wanted = {
        f"interlock/{p.relative_to(source)}" for p in files if p.is_file() and "__pycache__" not in p.parts
    }
    found = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    lines = [f"not in the wheel: {name}" for name in sorted(wanted - found)]
    lines += [f"in the wheel, but not in the source: {name}" for name in sorted(found - wanted)]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])) or 0)
