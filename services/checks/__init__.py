"""checks: keeps a check honest: which files are tests, what changed in them, and a view with those of before."""

VIEWS = "views"
"""Folder in the state directory."""
