"""Turns the declaration of a read edge into a mapping."""

from __future__ import annotations

from collections.abc import Mapping

from lineage_backfill.errors import DeclarationError
from lineage_backfill.partitions.lengths import Span
from lineage_backfill.partitions.mapping import KeyFunction, MappingSpec, Reach
from lineage_backfill.project.declarations import DimensionMapping, ReadDeclaration


def mapping_spec(
    read: ReadDeclaration | DimensionMapping,
    functions: Mapping[str, KeyFunction],
    *,
    own: bool = False,
) -> MappingSpec:
    """Return the mapping of a declared edge; `own`: it reads the job's own output.

    `functions` holds the functions of `python` mappings by their names. Raises DeclarationError.
    """
    before: Reach = 0
    after: Reach = 0
    if own and any(isinstance(one, Span) for one in (read.before, read.by)):
        raise DeclarationError(
            "a job reads its own output by keys, not by lengths of time",
            hint="Count the keys, as in by = -1 or before = 6.",
        )
    if read.mapping == "window":
        # A job's window over its own output ends where the run key starts.
        before, after = read.before or 0, -1 if own else read.after or 0
    elif read.mapping == "offset" and read.by is not None:
        before, after = -read.by, read.by
    function = None
    dimensions: tuple[tuple[str, MappingSpec], ...] = ()
    if isinstance(read, ReadDeclaration):
        dimensions = tuple(
            (name, mapping_spec(part, functions, own=own))
            for name, part in sorted(read.dimensions.items())
        )
        if read.mapping == "python":
            function = functions.get(read.function or "")
            if function is None:
                raise DeclarationError(
                    f"the function {read.function!r} of a python mapping was not loaded",
                    hint='Write function = "module:name" and keep the module importable.',
                )
    return MappingSpec(
        kind=read.mapping,
        before=before,
        after=after,
        table=tuple(sorted((key, tuple(reads)) for key, reads in read.map.items())),
        function=function,
        dimensions=dimensions,
    )


def declares_self(read: ReadDeclaration) -> bool:
    """Whether it is declared how a job reads its own earlier output."""
    parts: tuple[ReadDeclaration | DimensionMapping, ...] = (read, *read.dimensions.values())
    return any(
        (part.mapping == "offset" and isinstance(part.by, int) and part.by < 0)
        or (part.mapping == "window" and isinstance(part.before, int) and part.before > 0)
        for part in parts
    )
