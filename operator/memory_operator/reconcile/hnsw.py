"""The HNSW index: built once the rows are embedded, rebuilt when Postgres calls it invalid or spec.index changes.

An index that was there before us, under a name of its own, is used as it is.
"""

from datetime import datetime

from memory_operator.api.conditions import Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import MemoryIndex
from memory_operator.reconcile import jobs
from memory_operator.reconcile.observed import Observed
from memory_operator.reconcile.step import Step, waiting
from memory_operator.resources import workers
from memory_operator.resources.common import Images


def indexed(index: MemoryIndex, seen: Observed, images: Images, now: datetime, *, backfill: Verdict) -> Step:
    """Whether a valid index exists, and the Job that builds it."""
    facts = seen.facts
    if facts is None:
        return waiting("the database")
    wanted = (index.spec.index.m, index.spec.index.ef_construction)
    outdated = facts.index_valid and facts.index_parameters not in {None, wanted}
    if facts.index_valid and not outdated:
        return Step(Verdict.yes(Reason.VALID, "The HNSW index is valid."))
    if not backfill.holds:
        return Step(Verdict.no(Reason.WAITING, "The HNSW index is built after the backfill."))
    doing = "builds the HNSW index"
    if outdated:
        m, ef_construction = wanted
        doing = (
            f"builds the HNSW index anew with m {m} and efConstruction {ef_construction}; the old one serves meanwhile"
        )
    progress = f" ({facts.index_progress:.0%})" if facts.index_progress is not None else ""
    work = jobs.Work(
        namespace=index.namespace,
        config=workers.config_of(index, images, "index"),
        build=lambda sequence: workers.index_job(index, images, sequence),
        reason=Reason.BUILDING,
        doing=f"{doing}{progress}",
        pods=seen.pods_of("index"),
    )
    return jobs.run(seen.jobs_of("index"), work, now)
