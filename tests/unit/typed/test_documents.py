"""A document is read, written and described by one declaration of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import jsonschema
import pytest

from lineage_backfill.errors import ConfigError, DeclarationError, UsageError
from lineage_backfill.model import DatasetRef
from lineage_backfill.typed import (
    JSON,
    ONE_OR_MORE,
    Bounds,
    Star,
    Text,
    json_schema,
    member,
    plain,
    read,
    stated,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """Keys; only some grains have a start."""

    grain: Literal["day", "hour", "none"] | None = None
    start: Text | None = None

    def __post_init__(self) -> None:
        if self.grain == "none" and self.start:
            raise DeclarationError("has a `start`, but no keys", hint="Leave it out.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """An input."""

    dataset: Text
    before: Annotated[int, Bounds(0, 10, "It counts keys.")] | None = None
    names: Mapping[str, Annotated[tuple[Text, ...], ONE_OR_MORE]] = member({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job."""

    name: Text
    reads: tuple[Edge, ...] = ()
    writes: DatasetRef | None = None
    calendar: Calendar | None = member(None, flat=True)
    batch: Literal["key", "range"] | Annotated[int, Bounds(1)] | None = None
    keys: Annotated[tuple[str, ...] | None, Star()] = member(None, shown=True)
    kind: str = member("", "how it is run", key="class")
    began: datetime | None = None
    pair: tuple[int, int] = (0, 0)


FULL: dict[str, Any] = {
    "name": "j",
    "reads": [{"dataset": "d", "before": 3, "names": {"eu": ["de", "fr"]}}],
    "writes": {"namespace": "n", "name": "d"},
    "grain": "day",
    "batch": 5,
    "keys": "*",
    "class": "sql",
    "began": "2024-01-01T00:00:00Z",
    "pair": [1, 2],
}


def test_what_is_written_is_read_again_and_fits_its_schema() -> None:
    found = read(Job, FULL, "it")
    assert found.reads[0].names == {"eu": ("de", "fr")}
    assert found.writes == DatasetRef("n", "d")
    assert found.calendar == Calendar(grain="day")
    assert found.began == datetime(2024, 1, 1, tzinfo=UTC)
    assert plain(found) == FULL
    jsonschema.validate(FULL, json_schema(Job, "A job"))


def test_defaults_are_not_written_unless_they_are_shown() -> None:
    assert plain(Job(name="j")) == {"name": "j", "keys": "*"}
    assert read(Job, {"name": "j", "reads": None, "grain": None}, "it") == Job(name="j")


@pytest.mark.parametrize(
    ("spoil", "says", "hint"),
    [
        ({"nam": "x"}, "FILE: unknown key `nam`", "Did you mean `name`?"),
        ({"name": None}, "FILE: `name` is missing", ""),
        ({"name": " "}, "FILE: `name` is empty", "Give it a value"),
        ({"name": "\0"}, "FILE: `name` holds a NUL character", "Remove it."),
        ({"grain": "dau"}, "FILE: `grain` is 'dau', but must be one of day, hour, none", "`day`?"),
        ({"grain": 3}, "FILE: `grain` must be one of day, hour, none, not 3", ""),
        ({"grain": "none", "start": "x"}, "FILE: has a `start`, but no keys", "Leave it out."),
        (
            {"batch": "rang"},
            "FILE: `batch` must be one of key, range or a whole number, not 'rang'",
            "Did you mean `range`?",
        ),
        ({"reads": 3}, "FILE: `reads` must be a list of tables, not 3", ""),
        ({"reads": [{}]}, "FILE [[reads]] number 1: `dataset` is missing", ""),
        (
            {"reads": [{"dataset": "d", "before": 12}]},
            'FILE [[reads]] "d": `before` is 12, but must be at most 10',
            "It counts keys.",
        ),
        (
            {"reads": [{"dataset": "d", "names": {"eu": [1]}}]},
            'FILE [[reads]] "d": item 1 of `names.eu` must be a string, not 1',
            "",
        ),
        ({"writes": {"name": "d"}}, "FILE [writes]: `namespace` is missing", ""),
        ({"keys": "all"}, "FILE: `keys` must be a list of strings, not 'all'", ""),
        ({"began": "2024-01-01"}, "FILE: `began` is '2024-01-01', which has no UTC offset", ""),
        ({"pair": [1]}, "FILE: `pair` must be a list of 2, not a list", ""),
        ({"pair": [1, 2**63]}, "item 2 of `pair` is too large", ""),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(
    spoil: dict[str, Any], says: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(Job, FULL | spoil, "FILE")
    assert says in caught.value.message
    assert hint in caught.value.hint


def test_a_place_in_json_is_a_path() -> None:
    for wrong, says in (
        ({"dataset": 3}, "it: reads[0]: `dataset` must be a string, not 3"),
        (3, "it: `reads[0]` must be an object, not 3"),
    ):
        with pytest.raises(UsageError) as caught:
            read(Job, FULL | {"reads": [wrong]}, "it", style=JSON, fault=UsageError)
        assert caught.value.message == says


def test_unknown_members_may_be_collected() -> None:
    unknown: list[str] = []
    read(Job, FULL | {"x": 1, "reads": [{"dataset": "d", "y": 2}]}, "it", unknown=unknown)
    assert sorted(unknown) == ["x", "y"]


def test_a_secret_is_not_shown() -> None:
    @dataclass(frozen=True)
    class Login:
        password: str = ""

    with pytest.raises(ConfigError, match=r"`password` must be a string, not \*\*\*"):
        stated(Login, {"password": 1234}, "it")


class Row(TypedDict):
    """What a program prints."""

    name: str
    rows: int | None
    parts: NotRequired[list[Row]]


def test_a_document_that_is_only_written_may_be_a_typed_dict() -> None:
    schema = json_schema(Row, "A row")
    assert schema["required"] == ["name", "rows"]
    assert schema["properties"]["rows"] == {"type": ["integer", "null"]}
    jsonschema.validate({"name": "a", "rows": 1, "parts": [{"name": "b", "rows": None}]}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"name": "a", "rows": 1, "part": []}, schema)
