"""One TOML table, read key by key; a key that is not read is unknown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime, time
from typing import Any, TypeVar, cast

from lineage_backfill.errors import ConfigError, UsageError
from lineage_backfill.typed import Misfit, Rules, near_misses, reader

T = TypeVar("T")


class Table:
    """A TOML table or a JSON object, and its place in the file.

    Every getter takes its key out; `done` refuses what is left. `fault` is the class of errors,
    `title` what tells it from the others of a list.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        place: str,
        fault: type[UsageError] = ConfigError,
        title: str = "",
    ) -> None:
        self.values = values
        self.title = title
        self.place = f"{place} {title}" if title else place
        self._fault = fault
        self._left = dict(values)
        self._known: list[str] = []

    def __contains__(self, key: str) -> bool:
        return key in self._left

    def names(self) -> list[str]:
        """Return the keys that no getter has taken yet."""
        return list(self._left)

    def error(self, message: str, *, hint: str = "") -> UsageError:
        """Return an error that names this table."""
        return self._fault(f"{self.place}: {message}", hint=hint)

    @contextmanager
    def placed(self) -> Iterator[None]:
        """Give the errors of a declaration made inside the place of this table."""
        try:
            yield
        except UsageError as error:
            if str(error).startswith(self.place):
                raise
            raise self.error(str(error), hint=error.hint) from error

    def done(self) -> None:
        """Refuse the keys that no getter has asked for."""
        if self._left:
            key = next(iter(self._left))
            raise self.error(f"unknown key `{key}`", hint=near_misses(key, self._known))

    def raw(self, key: str) -> Any:
        """Take the value as TOML gave it, None if it is not there."""
        self._known.append(key)
        return self._left.pop(key, None)

    def text(self, key: str) -> str | None:
        """Take a string that is not empty."""
        value = self._typed(key, str)
        if value is not None and not value.strip():
            raise self.error(f"`{key}` is empty", hint="Give it a value or leave it out.")
        if value is not None and "\0" in value:  # no path holds one, and no name
            raise self.error(f"`{key}` holds a NUL character", hint="Remove it.")
        return value

    def need(self, key: str) -> str:
        """Take a string that must be there."""
        value = self.text(key)
        if value is None:
            raise self.error(f"`{key}` is missing")
        return value

    def integer(self, key: str, default: T, *, minimum: int | None = None) -> int | T:
        """Take a whole number of at least `minimum`."""
        value = self._typed(key, int)
        if value is None:
            return default
        if minimum is not None and value < minimum:
            raise self.error(f"`{key}` is {value}, but must be at least {minimum}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Take true or false."""
        value = self._typed(key, bool)
        return default if value is None else value

    def choice(self, key: str, options: tuple[Any, ...]) -> Any:
        """Take one of the words in `options`, None if the key is not there."""
        value = self.text(key)
        self._refuse_others(key, () if value is None else (value,), options)
        return value

    def choices(self, key: str, options: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Take one or several of the words in `options`, None if the key is not there."""
        values = self.texts(key)
        self._refuse_others(key, values or (), options)
        return values

    def _refuse_others(self, key: str, values: Iterable[str], options: tuple[str, ...]) -> None:
        for value in values:
            if value not in options:
                raise self.error(
                    f"`{key}` is {value!r}, but must be one of {', '.join(options)}",
                    hint=near_misses(value, options),
                )

    def texts(self, key: str) -> tuple[str, ...] | None:
        """Take a string or a list of strings."""
        value = self.raw(key)
        if value is None:
            return None
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list) or not all(isinstance(i, str) and i for i in items):
            raise self.error(f"`{key}` must be a list of strings")
        return tuple(items)

    def label(self, key: str) -> str | None:
        """Take a partition key: a string, or a TOML date or local time."""
        value = self.raw(key)
        if isinstance(value, datetime) and value.tzinfo is None:
            return value.strftime("%Y-%m-%dT%H" if value.time() == time(value.hour) else "%FT%R")
        if isinstance(value, date) and not isinstance(value, datetime):
            return value.isoformat()
        if value is None or (isinstance(value, str) and value):
            return value
        raise self.error(
            f"`{key}` must be a partition key",
            hint='Write it in quotes, as in "2024-06-15T14" or "2024-W24".',
        )

    def table(self, key: str) -> Table:
        """Take the table below `key`; an absent one is empty."""
        return Table(self.mapping(key), f"{self.place} {key}", self._fault)

    def mapping(self, key: str) -> Mapping[str, Any]:
        """Take a table as a plain mapping; an absent one is empty."""
        return self._typed(key, dict) or {}

    def tables(self, key: str) -> list[Table]:
        """Take a list of tables; each is placed by its name, or its number if it has none."""
        value = self.raw(key)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.error(f"`{key}` must be a list of tables ([[{key}]])")
        return [
            Table(item, self.place, self._fault, f"[[{key}]] {_title(item, number)}")
            for number, item in enumerate(value, 1)
        ]

    def _typed(self, key: str, kind: type[T]) -> T | None:
        value = self.raw(key)
        if value is None or (kind is int and type(value) is int):  # which has bounds
            return cast("T | None", value)
        try:
            return cast("T | None", reader(kind)(value, Rules()))
        except Misfit as error:
            raise self.error(error.sentence(key)) from None


def _title(item: Mapping[str, Any], number: int) -> str:
    for key in ("name", "pattern", "dataset"):
        if isinstance(item.get(key), str):
            return f'"{item[key]}"'
    return f"number {number}"
