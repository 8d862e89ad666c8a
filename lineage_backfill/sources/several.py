"""Several sources as one lineage; an error or an unreachable one leaves no part of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

from lineage_backfill.errors import BackfillError
from lineage_backfill.lineage.events.build import LineageBuilder
from lineage_backfill.lineage.joined import joined
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.plans.notice import Notice
from lineage_backfill.ports import BuiltSource, FoldedSource, LineageSource, NamingSource


class SeveralSources:
    """The lineage of `sources`, each with its kind.

    The events of all are folded as those of one source; what has no events is joined with them.
    """

    def __init__(self, sources: Sequence[tuple[str, LineageSource]]) -> None:
        self._sources = [
            (f"source {number} of [lineage] ({kind})", source)
            for number, (kind, source) in enumerate(sources, 1)
        ]
        self._source = ", ".join(dict.fromkeys(kind for kind, _ in sources))

    def read(self) -> LineageSnapshot:
        """Return the whole lineage; raises the error of a source, with its name."""
        builder, others = LineageBuilder(), list[tuple[str, LineageSource]]()
        notices, times = list[Notice](), list[datetime]()
        # First the server, which judges its events by its lists.
        for name, source in sorted(self._sources, key=lambda one: not _is_built(one[1])):
            with _named(name):
                if isinstance(source, BuiltSource) and not times:
                    builder, found, time = source.built()
                    times.append(time)
                    notices += found
                elif isinstance(source, FoldedSource):
                    notices += source.fold(builder)
                else:
                    others.append((name, source))
        times += [builder.newest] if builder.newest else []
        taken_at = max(times, default=None)
        whole = builder.snapshot(taken_at=taken_at, notices=notices)
        for name, source in sorted(others, key=lambda one: isinstance(one[1], NamingSource)):
            with _named(name):
                if isinstance(source, NamingSource):
                    part = source.read_beside(whole)
                else:
                    part = source.read()
            whole = joined([whole, part])
        return replace(whole, source=self._source)


def _is_built(source: LineageSource) -> bool:
    return isinstance(source, BuiltSource)


@contextmanager
def _named(source: str) -> Iterator[None]:
    try:
        yield
    except BackfillError as error:
        error.message = f"{source}: {error.message}"
        raise
