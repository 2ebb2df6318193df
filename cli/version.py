"""version: the version of Interlock."""

VERSION = "0.1.0"
"""The package takes its version from here, not the other way round: metadata would take half of `--version`."""
