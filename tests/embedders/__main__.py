"""`python -m tests.embedders`: third-party servers embed for an index on a cluster; the last line is JSON."""

import json
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import typer

import devcluster
from devcluster.progress import ConsoleReporter
from devcluster.settings import Settings
from tests.embedders.image import IMAGE, build_servers_image
from tests.embedders.index import FAR, egress_refusals, prove_server
from tests.embedders.servers import PLAIN, REFERENCE, SERVERS, namespace, own_objects, server_objects
from tests.support.cluster.platform import Platform

_SIDE_BY_SIDE = 4


def prove() -> None:
    """Have each server embed for an index, and print the figures; the status is 1 if one is not as required."""
    settings, reporter = Settings(), ConsoleReporter()
    with _platform(settings, reporter) as found:
        with reporter.step("Indexes whose texts would leave the cluster"):
            refused = egress_refusals(found)
        with reporter.step("An index for each server"), ThreadPoolExecutor(_SIDE_BY_SIDE) as workers:
            outcomes = list(workers.map(lambda server: prove_server(found, server), SERVERS))
    for outcome in outcomes:
        for fault in outcome.faults:
            typer.echo(f"not met: {outcome.server}: {fault}", err=True)
    figures = {
        "servers": len(outcomes),
        "ready": _share([one.ready for one in outcomes]),
        "backfilled": _share([one.backfilled for one in outcomes]),
        "recall_errors": sum(one.recall_errors for one in outcomes),
        "prefix_applied": _share([one.prefix_applied for one in outcomes if one.prefix_applied is not None]),
        "swapped_model_noticed": _share([one.swap_noticed for one in outcomes]),
        "egress_refused_without_consent": _share(refused),
        "status_and_worker_agree": all(one.agree for one in outcomes),
    }
    typer.echo(json.dumps(figures))
    met = all(value in {"all", True} for name, value in figures.items() if name not in {"servers", "recall_errors"})
    raise typer.Exit(0 if met and not figures["recall_errors"] else 1)


@contextmanager
def _platform(settings: Settings, reporter: ConsoleReporter) -> Iterator[Platform]:
    """Start a cluster with the servers, two memory-embedders, Postgres and the operator for the block."""
    devcluster.prepare()
    with tempfile.TemporaryDirectory(prefix="embedders-") as scratch:
        archive = Path(scratch) / "servers.tar"
        build_servers_image(archive, settings=settings, reporter=reporter)
        with _started(archive, reporter) as platform:
            yield platform


@contextmanager
def _started(archive: Path, reporter: ConsoleReporter) -> Iterator[Platform]:
    with devcluster.start(f"embedders-{datetime.now(UTC):%H%M%S}") as cluster:
        devcluster.install_cnpg(cluster)
        images = devcluster.load_images(cluster)
        with reporter.step(f"Load image {IMAGE}"):
            cluster.load(archive)
        with reporter.step("Start the servers"):
            cluster.apply(namespace(), *(one for server in SERVERS for one in server_objects(server)))
            cluster.apply(*(one for name in (REFERENCE, PLAIN) for one in own_objects(name, images.embedder)))
        platform = Platform(
            devcluster.create_postgres(cluster, cpu="200m", reporter=reporter), images.operator, images.embedder
        )
        hosts = ",".join([*(server.host for server in SERVERS), *FAR.values()])
        platform.install(f"permitted.externalHosts={{{hosts}}}")
        yield platform


def _share(met: list[bool]) -> str | int:
    return "all" if met and all(met) else sum(met)


if __name__ == "__main__":
    typer.run(prove)
