"""Turns the declaration of a read edge into a mapping."""

from __future__ import annotations

from collections.abc import Mapping

from lineage_backfill.errors import DeclarationError
from lineage_backfill.partitions.mapping import KeyFunction, MappingSpec
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
    before, after = 0, 0
    if read.mapping == "window":
        # A job's window over its own output ends where the run key starts.
        before, after = read.before or 0, -1 if own else read.after or 0
    elif read.mapping == "offset":
        before, after = -(read.by or 0), read.by or 0
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
        (part.mapping == "offset" and (part.by or 0) < 0)
        or (part.mapping == "window" and (part.before or 0) > 0)
        for part in parts
    )
