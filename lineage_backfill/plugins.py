"""Makes adapters of a kind that a project names: ours, and those of other packages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from lineage_backfill.errors import ConfigError

#: How Python says that a setting is unknown or missing.
_UNKNOWN = re.compile(r"unexpected keyword argument '([^']+)'")
_MISSING = re.compile(r"missing \d+ required keyword-only arguments?: (.+)")


@dataclass(frozen=True, slots=True)
class Plugins:
    """The adapters of one port, by kind.

    Packages add theirs with an entry point in the group `group`. Users call one `article` `noun`.
    """

    group: str
    article: str
    noun: str
    port: type

    def create(
        self,
        kind: str,
        settings: Mapping[str, object],
        own: Mapping[str, str] | None = None,
        **given: object,
    ) -> Any:
        """Make the adapter of a kind with settings of the project file and what the tool gives.

        `own` maps our kinds to MODULE:NAME. Raises ConfigError for an unknown kind, for settings
        that it does not take and for an adapter that lacks members of the port.
        """
        others = {point.name: point.value for point in entry_points(group=self.group)}
        known = {**others, **(own or {})}
        if kind not in known:
            kinds = ", ".join(sorted(known))
            hint = f"Use one of {kinds}." if known else f"Install the package of the {self.noun}."
            raise ConfigError(f"there is no {self.noun} of kind {kind!r}", hint=hint)
        module, _, name = known[kind].partition(":")
        make = getattr(import_module(module), name)
        try:
            made = make(**given, **settings)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                self._misfit(kind, str(error)),
                hint=f"See the documentation of this {self.noun} for its settings.",
            ) from error
        if not isinstance(made, self.port):
            port = f"{self.port.__module__}.{self.port.__qualname__}"
            raise ConfigError(
                f"{name} of {self.noun} kind {kind!r} does not have all members of {port}",
                hint="Subclass that protocol: it has defaults for what is optional.",
            )
        return made

    def _misfit(self, kind: str, error: str) -> str:
        """Return what is wrong with the settings, in the words of the project file."""
        one = f"{self.article} {self.noun} of kind {kind!r}"
        if unknown := _UNKNOWN.search(error):
            return f"{one} has no setting {unknown[1]!r}"
        if missing := _MISSING.search(error):
            return f"{one} needs the setting {missing[1]}"
        return f"the settings of {self.noun} {kind!r} do not fit: {error}"
