"""Tells whether a table of the project file is probably meant for a name that it does not match."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from enum import IntEnum
from fnmatch import translate
from functools import cached_property, lru_cache
from typing import Final, Generic, TypeVar

from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.project.declarations import (
    DatasetDeclaration,
    Declarations,
    JobDeclaration,
    ReadDeclaration,
    WriteDeclaration,
)
from lineage_backfill.project.matching import is_glob, matches, names
from lineage_backfill.project.slips import Slips, is_short, is_slip, shortened

Ref = TypeVar("Ref", bound=DatasetRef | JobRef)
_Declared = Sequence[ReadDeclaration | WriteDeclaration]
#: Least similarity of two names for a hint.
ALIKE: Final = 0.75
#: Least number of letters in which a word is sure to be another one misspelt: `cpu`, `gpu`.
_LONG: Final = 4
#: Fewer letters are never a slip: `eu` and `us` are two regions.
_SHORT: Final = 3
_TOKEN: Final = re.compile(
    r"(?P<word>[^\W_]+)|(?P<gap>[-_. ]+)|(?P<glob>[*?]|\[[^]]+\])|(?P<other>.)",
    re.DOTALL,
)
_EXACT: Final = re.compile(
    r"(?P<word>[^\W_]+)|(?P<gap>[-_. ]+)|(?P<glob>(?!))|(?P<other>.)", re.DOTALL
)
_WORDS: Final = re.compile(r"[^\W\d_]+")
#: Dashes and the like, except between two numbers.
_JOINT: Final = re.compile(r"(?<!\d)[-_. ]+|[-_. ]+(?!\d)")
_LETTER: Final = r"[^\W\d_]"
#: What may stand between a namespace and a name.
_JOINTS: Final = (":", ".", "/")


class Likeness(IntEnum):
    """How probably a declared name is another name, misspelt."""

    NONE = 0
    ALIKE = 1  #: worth a hint
    DOUBTFUL = 2  #: a letter of a short word differs, or the namespace
    SURE = 3  #: at most a letter of each long word, case, dashes and underscores differ
    EQUAL = 4  #: it is the name, written with its namespace


def likeness(declared: str, name: str) -> Likeness:
    """Return how probably a declared name or glob is a name, misspelt.

    >>> likeness("rollin-wek", "rolling_week"), likeness("wim", "win"), likeness("eu", "us")
    (<Likeness.SURE: 3>, <Likeness.DOUBTFUL: 2>, <Likeness.NONE: 0>)
    >>> likeness("jbober*", "jobber_2"), likeness("day_1", "day_2")
    (<Likeness.SURE: 3>, <Likeness.NONE: 0>)
    """
    text = name.casefold()
    if _equal(declared, name):
        return Likeness.SURE
    if not _loose(declared, is_sure=False).fullmatch(text):
        return Likeness.NONE
    return Likeness.SURE if _loose(declared, is_sure=True).fullmatch(text) else Likeness.DOUBTFUL


def _equal(one: str, other: str) -> bool:
    """Whether two names differ in case, dashes and the like at most."""
    return _joined(one) == _joined(other)


@lru_cache(maxsize=4096)
def _joined(name: str) -> str:
    return _JOINT.sub("", name.casefold())


@lru_cache(maxsize=1024)
def _loose(declared: str, *, is_sure: bool) -> re.Pattern[str]:
    """Return what a declared name matches with a slip in each word."""
    tokens = list((_TOKEN if is_glob(declared) else _EXACT).finditer(declared.casefold()))
    kinds = [None, *(token.lastgroup for token in tokens), None]
    parts = []
    for at, token in enumerate(tokens):
        text, before, after = token[0], kinds[at], kinds[at + 2]
        if token.lastgroup == "word":
            starts, ends = (is_sure and kind == "glob" for kind in (before, after))
            parts.append(f"(?:{'|'.join(_slips(text, is_sure, starts, ends))})")
        elif token.lastgroup == "gap":
            sides = tokens[at - 1][0][-1] if at else "", token.string[token.end() :][:1]
            is_needed = "glob" in (before, after) or all(map(str.isdigit, sides))
            parts.append(f"[-_. ]{'+' if is_needed else '*'}")
        elif token.lastgroup == "glob":
            parts.append(translate(text).removesuffix(r"\Z").removesuffix(r"\z"))
        else:
            parts.append(re.escape(text))
    return re.compile("".join(parts), re.DOTALL)


def _slips(word: str, is_sure: bool, starts: bool, ends: bool) -> Sequence[str]:
    """Return patterns for a word with at most one letter wrong, missing, added or swapped.

    Digits are never wrong. What a `*` stands beside is not varied at that end (`starts`, `ends`):
    another word that only begins alike would match.
    """
    letters = sum(not one.isdigit() for one in word)
    least = _LONG if is_sure else _SHORT
    first, last = int(starts), len(word) - int(ends)
    added = range(first, last + 1 if letters >= _SHORT else 0)
    found = [re.escape(word), *(_escaped(word[:at], word[at:], _LETTER) for at in added)]
    for at in range(first, last if letters >= least else 0):
        head, letter, tail = word[:at], word[at], word[at + 1 :]
        if letter.isdigit():
            continue
        found.append(_escaped(head, tail, rf"[^\W\d_{re.escape(letter)}]"))
        if letters >= _LONG:
            found.append(re.escape(head + tail))
        if tail and not tail[0].isdigit():
            found.append(re.escape(head + tail[0] + letter + tail[1:]))
    return list(dict.fromkeys(found))


def _escaped(head: str, tail: str, between: str) -> str:
    return f"{re.escape(head)}{between}{re.escape(tail)}"


def are_siblings(one: str, other: str) -> bool:
    """Whether two names differ only in numbers or short words, as those of regions do.

    >>> are_siblings("load_eu", "load_us"), are_siblings("load_2", "load"), are_siblings("a", "b")
    (True, True, True)
    >>> are_siblings("load_eu", "load_all")
    False
    """
    return _long_words(one) == _long_words(other)


def _long_words(name: str) -> list[str]:
    return [word for word in _WORDS.findall(name.casefold()) if len(word) >= _SHORT]


def of_table(
    declared: DatasetDeclaration | JobDeclaration, ref: DatasetRef | JobRef, home: str | None
) -> Likeness:
    """Return how probably a table is meant for a name that it does not match.

    In another namespace an equal name may be meant; of a glob it may as well be right.
    """
    space = declared.namespace or home
    if is_full(declared.name, ref) and (space is None or matches("*", space, ref, None)):
        return Likeness.EQUAL
    found = likeness(declared.name, ref.name)
    if (
        not found
        or space is None
        or matches("*", space, ref, None)
        or _is_near(space, ref.namespace)
    ):
        return found
    if is_glob(declared.name):
        return Likeness.ALIKE if matches(declared.name, None, ref, None) else Likeness.NONE
    return Likeness.DOUBTFUL if declared.name == ref.name else Likeness.NONE


def _is_near(space: str, other: str) -> bool:
    return space.casefold() == other.casefold() or is_slip(space, other)


def is_full(name: str, ref: DatasetRef | JobRef) -> bool:
    """Whether a name or glob is that of a dataset or job with its namespace before it."""
    full = (f"{ref.namespace}{joint}{ref.name}" for joint in _JOINTS)
    return any(matches(name, None, DatasetRef(ref.namespace, one), None) for one in full)


class Names(Generic[Ref]):
    """Known names, to find those that a table is probably meant for."""

    def __init__(self, refs: Collection[Ref]) -> None:
        self._refs = refs

    def meant(
        self,
        declared: DatasetDeclaration | JobDeclaration,
        home: str | None,
        *,
        with_alike: bool,
    ) -> dict[Ref, Likeness]:
        """Return the most probable names; those that are only alike take long to find."""
        near = self._refs if is_glob(declared.name) else self._near(declared.name)
        found: dict[Ref, Likeness] = {ref: of_table(declared, ref, home) for ref in near}
        best = max(found.values(), default=Likeness.NONE)
        if best:
            return {ref: one for ref, one in found.items() if one == best}
        alike = self._alike(declared, home, with_alike=with_alike)
        return dict.fromkeys(alike, Likeness.ALIKE)

    def _near(self, name: str) -> Collection[Ref]:
        """Return the names that may be like an exact one: those that have its rarest word."""
        full = self._full.get(name, ())
        if full:
            return full
        words = [
            {ref: None for text in shortened(word) for ref in self._with_word.get(text, ())}
            for word in _long_words(name)
        ]
        rarest: dict[Ref, None] = min(words, key=len, default={})
        return {**rarest, **dict.fromkeys(self._with_word.get(_joined(name), ()))}

    @cached_property
    def _full(self) -> Mapping[str, Sequence[Ref]]:
        """The names with their namespaces before them."""
        found: dict[str, list[Ref]] = {}
        for ref in self._refs:
            for joint in _JOINTS:
                found.setdefault(f"{ref.namespace}{joint}{ref.name}", []).append(ref)
        return found

    @cached_property
    def _with_word(self) -> Mapping[str, Sequence[Ref]]:
        """The names by their words, also without one letter, and by all of their words joined."""
        found: dict[str, list[Ref]] = {}
        for ref in self._refs:
            texts = {_joined(ref.name)}
            texts.update(*map(shortened, _WORDS.findall(ref.name.casefold())))
            for text in texts:
                found.setdefault(text, []).append(ref)
        return found

    def _alike(
        self, declared: DatasetDeclaration | JobDeclaration, home: str | None, *, with_alike: bool
    ) -> Iterable[Ref]:
        text = declared.name.strip("*?")
        space = declared.namespace or home
        found = {ref: None for ref in self._slips.near(text) if is_slip(text, ref.name)}
        if with_alike:
            names = {ref.name: ref for ref in self._refs}
            similar = get_close_matches(text, names, n=3, cutoff=ALIKE)
            found |= {
                names[name]: None
                for name in (*(name for name in names if is_qualified(text, name)), *similar)
                if not (are_siblings(text, name) or is_short(text, name))
            }
        return [ref for ref in found if space is None or matches("*", space, ref, None)]

    @cached_property
    def _slips(self) -> Slips[Ref]:
        return Slips(self._refs, (ref.name for ref in self._refs), lambda ref: ref.name)


def has_word(glob: str) -> bool:
    """Whether a glob names more than all: `sales_*`, unlike `*`."""
    return bool(_long_words(glob))


def is_qualified(one: str, other: str) -> bool:
    """Whether one name is the other with what it stands in before it: `nyc.daily`, `daily`."""
    longer, shorter = sorted((one.casefold(), other.casefold()), key=len, reverse=True)
    return longer != shorter and longer.endswith(shorter) and longer[-len(shorter) - 1] in _JOINTS


class Fit(IntEnum):
    """How the declared edges of a table fit those of a job."""

    OTHER = 0  #: it reads or writes nothing of what is declared
    OPEN = 1  #: no edge is declared, or some are those of the job
    WITHIN = 2  #: each declared edge is one of the job
    EQUAL = 3  #: each edge of the job is declared as well


def fit(
    declared: JobDeclaration,
    reads: Collection[DatasetRef],
    writes: Collection[DatasetRef],
    home: str | None,
) -> Fit:
    """Return how the declared edges of a table fit the inputs and outputs of a job."""
    sides: list[tuple[_Declared, Collection[DatasetRef]]] = [
        (declared.reads, reads),
        (declared.writes, writes),
    ]
    said = [(edges, refs) for edges, refs in sides if edges]
    used = [[any(names(edge, ref, home) for ref in refs) for edge in edges] for edges, refs in said]
    if not all(map(any, used)):
        return Fit.OTHER
    if not said or not all(map(all, used)):
        return Fit.OPEN
    named = (any(names(edge, ref, home) for edge in edges) for edges, refs in said for ref in refs)
    return Fit.EQUAL if len(said) == len(sides) and all(named) else Fit.WITHIN


def is_same(declared: JobDeclaration, name: str, like: Likeness, fits: Fit) -> bool:
    """Whether a table that sets what a run must not lose is almost certainly that of a job."""
    if not lost(declared) or fits is Fit.OTHER:
        return False
    siblings = are_siblings(declared.name, name)
    return (
        like is Likeness.EQUAL
        or (like is Likeness.SURE and (_equal(declared.name, name) or not siblings))
        or (like is Likeness.DOUBTFUL and fits >= Fit.WITHIN)
        or (like is Likeness.ALIKE and fits is Fit.EQUAL and not siblings)
    )


def lost(declared: JobDeclaration) -> list[str]:
    """Return the settings of a table that keep its job from running, or decide what a run does."""
    given = {
        "protected": declared.protected,
        "idempotent": not declared.idempotent,
        "reads": declared.reads,
        "writes": declared.writes,
    }
    return [f"`{name}`" for name, one in given.items() if one]


def first(refs: Iterable[DatasetRef | JobRef], most: int = 3) -> str:
    """Return the first names, as a question names them."""
    return " or ".join(map(str, sorted(refs)[:most]))


def tables_meant(
    declarations: Declarations,
    ref: JobRef,
    reads: Collection[DatasetRef],
    writes: Collection[DatasetRef],
) -> list[JobDeclaration]:
    """Return the tables probably meant for a job that has none, where no lineage is known.

    Inputs or outputs that are not known do not count.
    """
    home = declarations.namespace
    own = [one for one in declarations.jobs if matches(one.name, one.namespace, ref, home)]
    if any(not is_glob(one.name) or has_word(one.name) for one in own):
        return []
    texts = {text for word in _WORDS.findall(ref.name.casefold()) for text in shortened(word)}

    def may_be_like(name: str) -> bool:  # most are not, and this is quick
        words = map(shortened, _long_words(name))
        return is_glob(name) or not any(map(texts.isdisjoint, words)) or _equal(name, ref.name)

    found = []
    for one in declarations.jobs:
        if not lost(one) or one in own or not may_be_like(one.name):
            continue
        like = of_table(one, ref, home)
        if like < Likeness.DOUBTFUL or (like < Likeness.SURE and not (one.reads or one.writes)):
            continue
        known = replace(one, reads=one.reads if reads else (), writes=one.writes if writes else ())
        if fit(known, reads, writes, home) is not Fit.OTHER:
            found.append(one)
    return found
