"""installation: optional parts of this installation, and the command that adds them the way Interlock was installed."""

from collections.abc import Sequence
from typing import NamedTuple

from interlock.services.packages import (
    EXTRAS,
    extra_packages,
    install_command,
    install_packages,
    missing_packages,
)
from interlock.state.errors import UserError
from interlock.state.text import did_you_mean

__all__ = ("Part", "install_command", "install_packages", "list_parts", "missing_packages_of_parts")


class Part(NamedTuple):
    part: str
    installed: bool
    adds: str


def list_parts() -> list[Part]:
    """Return every extra, and whether all of its packages are installed."""
    return [Part(name, not missing_packages(extra_packages(name)), adds) for name, adds in EXTRAS.items()]


def missing_packages_of_parts(parts: Sequence[str]) -> list[str]:
    """Return the packages of extras and providers that aren't installed. Raise `UserError` for an unknown name."""
    return missing_packages([package for part in parts for package in _packages_of_part(part)])


def _packages_of_part(part: str) -> list[str]:
    from interlock.services.models.names import PROVIDERS

    if part in EXTRAS:
        return extra_packages(part)
    if part in PROVIDERS:
        return [PROVIDERS[part].package]
    hint = did_you_mean(part, [*EXTRAS, *PROVIDERS])
    raise UserError(f"No part {part!r}.{hint} List them: interlock install")
