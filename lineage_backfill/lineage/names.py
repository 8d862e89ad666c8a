"""Matches names that users type with known datasets and jobs; names are never split."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar

from lineage_backfill.errors import AmbiguousNameError, UnknownNameError
from lineage_backfill.model import DatasetRef, JobRef, did_you_mean, listed

_LAST = re.compile("[/.]")
Ref = TypeVar("Ref", DatasetRef, JobRef)


def resolve(text: str, known: Iterable[Ref], *, kind: str, namespace: str | None = None) -> Ref:
    """Return the dataset or job that a text names.

    A bare name does where only one has it, else `namespace:name`; `namespace` narrows the search
    of bare names. Raises UnknownNameError with near misses, AmbiguousNameError with the candidates.
    """
    known = list(known)
    if text in (whole := {str(ref): ref for ref in known}) and namespace is not None:
        return whole[text]
    refs = [ref for ref in known if namespace is None or ref.namespace == namespace]
    if known and namespace is not None and not refs:
        spaces = sorted({ref.namespace for ref in known})
        raise UnknownNameError(
            f"no {kind} is in the namespace {namespace!r}",
            hint=did_you_mean(namespace, spaces) or f"Known here: {listed(spaces)}.",
        )
    # Both readings are looked up: a name may itself contain a colon.
    found = sorted({ref for ref in refs if text in (ref.name, f"{ref.namespace}:{ref.name}")})
    if len(found) == 1:
        return found[0]
    if found:
        raise AmbiguousNameError(
            f"{text!r} names {len(found)} {kind}s",
            hint="Name one of them: " + " or ".join(str(ref) for ref in found[:5]),
        )
    raise unknown(text, refs, kind=kind)


def unknown(text: str, known: Iterable[DatasetRef | JobRef], *, kind: str) -> UnknownNameError:
    """Return the error for an unknown name, with similar names, bare or in full."""
    refs = list(known)
    near = did_you_mean(text, (ref.name for ref in refs))
    near = near or did_you_mean(text, map(str, refs))
    if not near:  # the last part of a path, or of a table in a schema
        same = {str(ref) for ref in refs if _LAST.split(ref.name.rstrip("/"))[-1] == text}
        near = f"Did you mean {' or '.join(sorted(same)[:3])}?" if same else ""
    whole, at, keys = text.rpartition("@")
    if at and any(whole in (ref.name, str(ref)) for ref in refs):
        hint = f"Write the partitions apart: {whole} --partitions {keys}"
    elif near:
        hint = near
    elif refs:
        hint = "`lineage-backfill lineage show` lists all names."
    else:
        hint = f"The lineage has no {kind} at all: check where it is read from."
    return UnknownNameError(f"no {kind} is named {text!r}", hint=hint)
