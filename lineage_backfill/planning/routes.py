"""The shortest paths from the roots to jobs and datasets, for reasons."""

from __future__ import annotations

from collections.abc import Collection

from lineage_backfill.model import JobRef
from lineage_backfill.planning.propagate import Propagation
from lineage_backfill.project.resolve.resolver import DatasetFacts, Input, JobFacts


class Routes:
    """The distance of each job and dataset from the roots, with the nearest input."""

    def __init__(self, propagation: Propagation, root_jobs: Collection[JobFacts]) -> None:
        self._to: dict[DatasetFacts, int] = dict.fromkeys(propagation.roots, 0)
        self._hops: dict[JobRef, int] = {}
        #: The input through which the change first arrives; absent for pure roots.
        self.via: dict[JobRef, Input] = {}
        #: The job through which the change reaches a dataset.
        self.maker: dict[DatasetFacts, JobRef] = {}
        moved = True
        while moved:
            moved = False
            for facts in propagation.results:
                ref, stale_inputs = facts.ref, propagation.stale_inputs(facts)
                nearest = None
                for edge in stale_inputs:
                    hops = self._to.get(edge.data, 0)
                    if not edge.own and (nearest is None or hops < nearest):
                        nearest, self.via[ref] = hops, edge
                if not stale_inputs and facts not in root_jobs:
                    continue
                hops = self._hops[ref] = (nearest or 0) + 1
                for output in facts.outputs:
                    known = self._to.get(output.data)
                    if known is None or known > hops:
                        self._to[output.data] = hops
                        self.maker[output.data] = ref
                        # In run order one pass is enough, except for jobs in a cycle of datasets.
                        moved = bool(propagation.cyclic)

    def to_job(self, job: JobRef) -> int:
        """Return the number of jobs on the path to a job, itself included."""
        return self._hops.get(job, 0)

    def to_dataset(self, data: DatasetFacts) -> int:
        """Return the number of jobs on the path to a dataset; 0 for a root."""
        return self._to.get(data, 1)
