"""configuration: what a run is configured by: trust, environment, settings, hooks, rules and definitions.

One value per process for the same sources: each part is loaded when it is first asked for, and every drive, list and
page gets the value that the last one got, until a file that it was made from has changed
(`docs/internals.md#configuration-is-read-once`).
"""

import os
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from interlock.services.config.formats import DotEnv, load_dotenv
from interlock.services.config.settings import LoadedSettings, load_settings
from interlock.services.files.stamps import Stamps, path_exists
from interlock.services.hooks.hook_settings import HookRegistry, load_hooks
from interlock.services.policy.rule_files import (
    ADMIN_FOLDERS,
    RulePlaces,
    RuleProblem,
    RuleText,
    list_rule_files,
    parse_rule_files,
    read_rule_files,
)
from interlock.services.trust.decisions import is_trusted
from interlock.services.trust.project_files import ignored_files_warning, list_files_needing_trust

if TYPE_CHECKING:
    from interlock.services.context.definition_files import Folders, Loaded
    from interlock.services.context.skills import Skill
    from interlock.services.policy.modes import ModeRegistry
    from interlock.services.policy.rule import Rule
    from interlock.state.context import Commands
    from interlock.state.subagent import AgentDefinition

T = TypeVar("T")


@dataclass(frozen=True)
class ConfigurationSources:
    """Where a configuration comes from."""

    root: Path
    """The workspace: a real path."""
    home: Path
    """The user's home directory."""
    env: Mapping[str, str]
    overrides: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Settings of flags."""
    trusted: bool | None = None
    """Whether the workspace's own files count; None: as the user has decided on the folder."""
    admin: Sequence[Path] = ADMIN_FOLDERS
    policies: tuple[Path, ...] = ()
    """Files of `--policy`."""


class LoadedRules(NamedTuple):
    """The rule files, and what they say."""

    texts: list[RuleText]
    rules: "list[Rule]"
    problems: list[RuleProblem]


def _cached_property_tracking_reads(load: Callable[["Configuration"], T]) -> cached_property[T]:
    """Return a property that is loaded when it is first asked for, with the stamps of the files that it reads."""

    def load_once(configuration: "Configuration") -> T:
        with configuration.stamps.capture_reads():
            return load(configuration)

    return cached_property(load_once)


class Configuration:
    """What the files of its sources say. Its parts raise `ConfigError` as what loads them."""

    def __init__(self, sources: ConfigurationSources) -> None:
        self.sources = replace(sources, env={**sources.env}, overrides=deepcopy(dict(sources.overrides)))
        self.stamps = Stamps()
        self._made: dict[object, object] = {}
        self._at = self.sources.root, self.sources.home

    @_cached_property_tracking_reads
    def is_workspace_trusted(self) -> bool:
        decided = self.sources.trusted
        return is_trusted(*self._at) if decided is None else decided

    @_cached_property_tracking_reads
    def environment(self) -> DotEnv:
        root, home = self._at
        return load_dotenv(start=root, home=home, env=self.sources.env, trusted=self.is_workspace_trusted)

    @_cached_property_tracking_reads
    def loaded_settings(self) -> LoadedSettings:
        (root, home), env = self._at, self.environment.values
        return load_settings(
            workspace=root,
            home=home,
            env=env,
            overrides=self.sources.overrides,
            trusted=self.is_workspace_trusted,
            repository=self.trusted_repository,
        )

    @_cached_property_tracking_reads
    def trusted_repository(self) -> Path | None:
        """The root of the repository that the workspace is a folder of, if it is trusted, too."""
        root, home = self._at
        top = next((d for d in (root, *root.parents) if path_exists(d / ".git")), None)
        if top in (None, root, home) or not self.is_workspace_trusted:
            return None
        return top if self.sources.trusted or is_trusted(top, home) else None

    @_cached_property_tracking_reads
    def hooks(self) -> HookRegistry:
        return load_hooks(self.loaded_settings.hooks, self.environment.values)

    @_cached_property_tracking_reads
    def definition_folders(self) -> "Folders":
        """Where skills, commands and sub-agents may stand: those of the repository count in its subfolders, too."""
        from interlock.services.context.definition_files import Folders, find_parents_in_repository

        root, home = self._at
        decided, parents = self.sources.trusted, find_parents_in_repository(root, home)
        counts = {p: is_trusted(p, home) if decided is None else decided for p in parents}
        trusted, above = self.is_workspace_trusted, [p for p in parents if counts[p]]
        ignored = [*([] if trusted else [root]), *(p for p in parents if not counts[p])]
        off = frozenset(
            kind for kind, on in self.loaded_settings.settings.context.read.model_dump().items() if not on
        )
        return Folders(root, home, trusted, tuple(above), tuple(ignored), off)

    @_cached_property_tracking_reads
    def agents(self) -> "Loaded[AgentDefinition]":
        from interlock.services.context.agents import load_agents  # deferred: few commands show any

        return load_agents(self.definition_folders)

    @_cached_property_tracking_reads
    def skills(self) -> "Loaded[Skill]":
        from interlock.services.context.skills import load_skills

        return load_skills(self.definition_folders)

    @_cached_property_tracking_reads
    def modes(self) -> "tuple[ModeRegistry, list[str]]":
        from interlock.services.policy.modes import load_modes

        return load_modes(*self._at, self.is_workspace_trusted)

    @_cached_property_tracking_reads
    def commands(self) -> "Commands":
        from interlock.services.context.commands import load_commands

        return load_commands(self.definition_folders, self.skills.by_name)

    @_cached_property_tracking_reads
    def rule_places(self) -> RulePlaces:
        """Where its rules are."""
        reads_claude_settings = self.loaded_settings.settings.context.read.permissions
        return RulePlaces(
            *self._at,
            self.is_workspace_trusted,
            self.sources.admin,
            self.sources.policies,
            reads_claude_settings,
        )

    @_cached_property_tracking_reads
    def rules(self) -> LoadedRules:
        texts = read_rule_files(list_rule_files(self.rule_places))
        return LoadedRules(texts, *parse_rule_files(texts))

    @_cached_property_tracking_reads
    def warnings_about_ignored_files(self) -> list[str]:
        """A line that names what doesn't count because the folder isn't trusted; none if it is."""
        return (
            []
            if self.is_workspace_trusted
            else ignored_files_warning(
                list_files_needing_trust(*self._at, self.loaded_settings.settings.context), self._at[0]
            )
        )

    def load_as_if_trusted(self) -> "Configuration":
        """Return what would count if the folder were trusted."""
        return load_or_reuse_configuration(replace(self.sources, trusted=True))

    def compute_once(self, key: object, compute: Callable[[], T]) -> T:
        """Return what is made of this configuration, made once. What it reads of files is noted as a part's is."""
        if key not in self._made:
            with self.stamps.capture_reads():
                self._made[key] = compute()
        return cast(T, self._made[key])


_MOST = 8
"""Configurations kept: folders with their options that one process works in by turns."""
_known: list[Configuration] = []


def load_default_configuration(root: Path, trusted: bool | None = None) -> Configuration:
    """Return what configures a run that this process's user starts in a folder, without options."""
    return load_or_reuse_configuration(ConfigurationSources(root, Path.home(), os.environ, trusted=trusted))


def load_or_reuse_configuration(sources: ConfigurationSources) -> Configuration:
    """Return the configuration of these sources: the same value as before if no file has changed since."""
    known = next((one for one in _known if one.sources == sources), None)
    if known and known.stamps.are_current():
        return known
    made = Configuration(sources)
    _known[:] = [*(one for one in _known if one is not known), made][-_MOST:]
    return made
