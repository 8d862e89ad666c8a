"""Makes adapters of a kind that a project names: ours, and those of other packages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from inspect import Parameter, signature
from typing import Any

from lineage_backfill.errors import BackfillError, ConfigError
from lineage_backfill.typed import SettingError, checked

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
        *,
        name: str = "",
        from_text: bool = False,
        **given: object,
    ) -> Any:
        """Make the adapter of a kind with settings of the project file and what the tool gives.

        `own` maps our kinds to MODULE:NAME. `name` is that of the adapter in the project file, by
        default its kind. With `from_text`, strings may stand for numbers. Raises ConfigError for an
        unknown kind, for settings that it does not take, for an adapter that cannot be made and for
        one that lacks members of the port.
        """
        others = {point.name: point.value for point in entry_points(group=self.group)}
        known = {**others, **(own or {})}
        if kind not in known:
            kinds = ", ".join(sorted(known))
            hint = f"Use one of {kinds}." if known else f"Install the package of the {self.noun}."
            raise ConfigError(f"there is no {self.noun} of kind {kind!r}", hint=hint)
        if ours := sorted(settings.keys() & given.keys()):
            raise ConfigError(f"{self._one(kind)} has no setting {ours[0]!r}", hint=self._hint)
        try:
            module, _, attribute = known[kind].partition(":")
            make = getattr(import_module(module), attribute)
            made = make(**_taken(make, given), **checked(make, settings, from_text=from_text))
        except BackfillError:
            raise
        except SettingError as error:
            place = f"{error.place} of {self.noun} `{name or kind}`"
            raise ConfigError(f"{place} {error.fault}", hint=self._hint) from error
        except (TypeError, ValueError) as error:
            raise ConfigError(
                self._misfit(kind, name or kind, str(error)), hint=self._hint
            ) from error
        except Exception as error:
            what = f"{self.noun} `{name or kind}` of kind {kind!r} cannot be made"
            hint = f"{self._hint} If they are right, report it to its package."
            if isinstance(error, ModuleNotFoundError) and kind in (own or {}):
                hint = f"Install what it needs: pip install 'lineage-backfill[{kind}]'"
            raise ConfigError(f"{what}: {type(error).__name__}: {error}", hint=hint) from error
        if not isinstance(made, self.port):
            port = f"{self.port.__module__}.{self.port.__qualname__}"
            raise ConfigError(
                f"{attribute} of {self.noun} kind {kind!r} does not have all members of {port}",
                hint="Subclass that protocol: it has defaults for what is optional.",
            )
        return made

    @property
    def _hint(self) -> str:
        return f"See the documentation of this {self.noun} for its settings."

    def _one(self, kind: str) -> str:
        return f"{self.article} {self.noun} of kind {kind!r}"

    def _misfit(self, kind: str, name: str, error: str) -> str:
        """Return what is wrong with the settings, in the words of the project file."""
        one = self._one(kind)
        if unknown := _UNKNOWN.search(error):
            return f"{one} has no setting {unknown[1]!r}"
        if missing := _MISSING.search(error):
            return f"{one} needs the setting {missing[1]}"
        return f"the settings of {self.noun} {name!r} do not fit: {error}"


def _taken(make: Callable[..., Any], given: Mapping[str, object]) -> dict[str, object]:
    """Return what an adapter takes of what the tool gives."""
    parameters = signature(make).parameters
    takes_all = any(one.kind is Parameter.VAR_KEYWORD for one in parameters.values())
    return {name: value for name, value in given.items() if takes_all or name in parameters}
