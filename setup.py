"""setup: finds the packages. `pyproject.toml` has everything else, but can't find packages under another name.

A folder at the root with a `py.typed` is a room. It and every folder below it is a package of `interlock`.
"""

from pathlib import Path

from setuptools import find_namespace_packages, setup

HERE = Path(__file__).parent
ROOMS = sorted(marker.parent.name for marker in HERE.glob("*/py.typed"))
FOUND = find_namespace_packages(
    str(HERE), include=[*ROOMS, *(f"{room}.*" for room in ROOMS)], exclude=["*.__pycache__"]
)

setup(packages=[f"interlock.{name}" for name in sorted(FOUND)], package_dir={"interlock": "."})
