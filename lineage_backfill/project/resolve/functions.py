"""The functions of `python` mappings, as the project file names them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lineage_backfill.errors import DeclarationError
from lineage_backfill.project.declarations import JobDeclaration


def mapping_functions(
    jobs: Iterable[JobDeclaration], load: Callable[[str], Any], *, hint: str
) -> Mapping[str, Callable[[Any], Any]]:
    """Return the functions of all `python` mappings of the jobs, by MODULE:NAME.

    `load` imports one. Raises DeclarationError with this hint if that fails, in whatever way: it
    is the user's code.
    """
    functions = {}
    for name in sorted({read.function for job in jobs for read in job.reads if read.function}):
        try:
            functions[name] = load(name)
        except (Exception, SystemExit) as error:
            raise DeclarationError(
                f"the mapping function {name} cannot be loaded: {type(error).__name__}: {error}",
                hint=hint,
            ) from error
    return functions
