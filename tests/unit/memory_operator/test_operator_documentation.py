"""What the documentation and the definition say of the operator is what it does."""

import re
from dataclasses import replace
from pathlib import Path

from memory_operator.api.spec import parse
from memory_operator.controller.events import of_started_job
from memory_operator.reconcile.plan import Apply
from memory_operator.resources.workers import backfill_job
from memory_recall.status import RowCounts
from tests.unit.memory_operator.conftest import FULL, Cluster, World

ROOT = Path(__file__).parents[3]
HASH = re.compile(r"(?<=-backfill-)[0-9a-f]{8}")


def documented(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def test_the_documented_screen_shows_the_message_and_the_event_of_a_backfill(world: World) -> None:
    manifest = world.manifest()
    manifest["metadata"] |= {"name": "claude-memory", "namespace": "claude-memory"}
    event = next(of_started_job(Apply(backfill_job(parse(manifest), world.images, 0)))).message
    cluster = Cluster(world, world.manifest())
    cluster.database = replace(FULL, rows=RowCounts(total=9000, embedded=1200, pending=7800))
    for _ in range(3):
        cluster.reconcile()
    message = cluster.condition("Backfilled")["message"].replace("Job mem-", "Job claude-memory-")
    page = HASH.sub("HASH", documented("docs/operator.md"))
    assert f"backfill: {HASH.sub('HASH', message)}\n" in page
    assert f"JobStarted: {HASH.sub('HASH', event)}\n" in page


def test_a_private_registry_is_documented_with_the_field_that_every_pod_of_an_index_takes(world: World) -> None:
    index = world.index(embedder={"podTemplate": {"imagePullSecrets": [{"name": "registry"}]}})
    pod = backfill_job(index, world.images, 0)["spec"]["template"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert "spec.embedder.podTemplate.imagePullSecrets" in documented("docs/install.md")
