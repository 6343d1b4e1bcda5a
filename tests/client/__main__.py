"""`python -m tests.client DIR`: proves that the memory API works with our library; the last line of output is JSON."""

import itertools
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Annotated

import orjson
import typer

import devcluster
from devcluster.install import OPERATOR_NAMESPACE
from devcluster.progress import ConsoleReporter
from devcluster.retrying import until
from devcluster.settings import REPOSITORY, Settings
from memory_recall.indexing.usual_cosine import everyday_prompts
from tests.client.change import PATCH, read_change
from tests.client.conversation import Stored
from tests.client.figures import Observed, Span, shortcomings, summarize
from tests.client.image import IMAGE, build_client_image
from tests.client.inside import Request
from tests.client.own_tests import OwnTests, run_own_tests
from tests.client.store import NAMES, ApiOnCluster
from tests.support.cluster.platform import OPERATOR, OPERATOR_PODS, Platform

_CALM_SECONDS = 20.0
_OTHERS = REPOSITORY / "examples" / "homelab" / "corpus.jsonl"
_OTHER_MEMORIES = 200
_EVERYDAY = REPOSITORY / "examples" / "everyday" / "prompts.jsonl"
_EVERY_NTH_PROMPT = 8
_REQUESTS = REPOSITORY / "build" / "e2e-client" / "requests.jsonl"
_EMBEDDER_PODS = "app.kubernetes.io/component=embedder"


def prove(
    client: Annotated[Path, typer.Argument(help="A checkout of claude-memory-mcp; it is not changed")],
    tests: Annotated[bool, typer.Option(help="Run the API's own test-suite as well")] = True,
) -> None:
    """Patch the first user's memory API as the example does, and prove on a new cluster that it works."""
    settings, reporter = Settings(), ConsoleReporter()
    with tempfile.TemporaryDirectory(prefix="client-") as scratch:
        own_tests = OwnTests(frozenset(), frozenset())
        if tests:
            with reporter.step("Run the API's own tests before the change and after it") as step:
                own_tests = run_own_tests(client.absolute(), Path(scratch), settings)
                step.note(f"{len(own_tests.before)} passed before, {len(own_tests.after)} after")
        devcluster.prepare()
        archive = Path(scratch) / "api.tar"
        build_client_image(client.absolute(), archive, settings=settings, reporter=reporter)
        with _running_api(archive, reporter) as api:
            met = _report(_observe(api, reporter, own_tests))
    raise typer.Exit(0 if met else 1)


def _report(observed: Observed) -> bool:
    """Print the figures and write the requests to a file; return whether all figures are as required."""
    _REQUESTS.parent.mkdir(parents=True, exist_ok=True)
    _REQUESTS.write_bytes(b"".join(orjson.dumps(request) + b"\n" for request in observed.requests))
    figures = summarize(observed)
    missing = shortcomings(figures, observed.own_tests)
    for claim in missing:
        typer.echo(f"not met: {claim}", err=True)
    typer.echo(json.dumps(figures))
    return not missing


@contextmanager
def _running_api(archive: Path, reporter: ConsoleReporter) -> Iterator[ApiOnCluster]:
    """Run the API, our operator and Postgres with two instances in a new cluster until the block ends."""
    with devcluster.start(f"client-{datetime.now(UTC):%H%M%S}") as cluster:
        devcluster.install_cnpg(cluster)
        images = devcluster.load_images(cluster)
        with reporter.step(f"Load image {IMAGE}"):
            cluster.load(archive)
        postgres = devcluster.create_postgres(
            cluster, instances=2, storage="1Gi", cpu="200m", database=NAMES.database, reporter=reporter
        )
        Platform(postgres, images.operator, images.embedder).install()
        api = ApiOnCluster(postgres)
        with reporter.step("Start the API, which makes its own tables"):
            api.start()
        yield api


def _observe(api: ApiOnCluster, reporter: ConsoleReporter, own_tests: OwnTests) -> Observed:
    with reporter.step("Store memories over REST, and ask without an index"):
        lines = itertools.islice(_OTHERS.read_bytes().splitlines(), _OTHER_MEMORIES)
        stored = api.store([orjson.loads(line)["content"] for line in lines if not orjson.loads(line)["is_sensitive"]])
        if found := api.converse(stored).found:
            raise RuntimeError(f"{found} questions were answered by words alone, so they prove nothing")
    with reporter.step("The operator brings the index"):
        api.index()
    # What the API knows of the table's readiness is ten seconds old at most.
    time.sleep(_CALM_SECONDS)
    first = api.converse(stored)
    with tempfile.TemporaryFile() as output:
        calm, failover, elsewhere = _disturb(api, stored, output, reporter)
        output.seek(0)
        requests = [Request(**orjson.loads(line)) for line in output.read().splitlines()]
    rounds = (first, api.converse(stored))
    with reporter.step("Ask prompts that no memory answers"):
        rows = api.rows_for_unanswerable(unanswerable_prompts())
    lines_changed = read_change(PATCH.read_text()).lines
    return Observed(requests, calm, failover, rounds, elsewhere, lines_changed, rows, own_tests)


def unanswerable_prompts() -> list[str]:
    """Return everyday prompts, in three languages, from none of which a worker finds the usual cosine of a table."""
    texts = [str(orjson.loads(line)["text"]) for line in _EVERYDAY.read_bytes().splitlines()]
    known = frozenset(everyday_prompts())
    return [text for text in texts if text not in known][::_EVERY_NTH_PROMPT]


def _disturb(
    api: ApiOnCluster, stored: Stored, output: IO[bytes], reporter: ConsoleReporter
) -> tuple[list[Span], Span, int]:
    """Kill the embedder, the operator and the primary while the API is asked; return the calm spans and the failover.

    The third value counts words of sensitive memories in logs, which are read before each kill, and vectors of
    sensitive rows.
    """
    calm, elsewhere = [], 0
    with api.recalled(stored, output) as asking:
        calm.append(_calm())
        for what, namespace, pods, name in (
            ("embedder", NAMES.namespace, _EMBEDDER_PODS, f"{NAMES.index}-embedder"),
            ("operator", OPERATOR_NAMESPACE, OPERATOR_PODS, OPERATOR),
        ):
            elsewhere += api.sensitive_texts()
            with reporter.step(f"Kill the {what}"):
                api.kill(namespace, "-l", pods)
                time.sleep(2)
                api.await_rollout(name, namespace)
                api.await_ready()
        before, began = api.postgres.primary(), time.time()
        with reporter.step(f"Kill the primary, {before}"):
            api.kill(api.postgres.namespace, before)
            until("a new primary is named", lambda: api.new_primary(before), seconds=120)
            failover = Span(began, time.time())
            api.postgres.wait_ready()
            api.await_ready()
        time.sleep(_CALM_SECONDS)
        calm.append(_calm())
        if asking.poll() is not None:
            raise RuntimeError(f"the program that asks ended with status {asking.returncode}")
    return calm, failover, elsewhere + api.sensitive_texts()


def _calm() -> Span:
    began = time.time()
    time.sleep(_CALM_SECONDS)
    return Span(began, time.time())


if __name__ == "__main__":
    typer.run(prove)
