"""The demo's environment on a cluster: this module creates what a user brings, and the operator makes the index.

The module uses only what a user has: `helm install`, a Secret, one YAML file, and a watch of the conditions. Facts
about the data are read with `psql` on the primary, never with this project's own programs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devcluster.demo import follow, objects
from devcluster.demo.console import DemoConsole, Step
from devcluster.demo.diagnosis import describe_index
from devcluster.demo.environment import Completed, DemoError, Speed, last_object
from devcluster.demo.watch import Watch
from devcluster.errors import CommandError
from devcluster.postgres import Postgres

POLL_SECONDS = 5.0  # how late the deadline may be noticed while nothing changes
BASE_DEADLINE = 300.0
ROWS_PER_SECOND_FLOOR = 8.0  # slower than any machine this is shown on; only the deadline depends on it


@dataclass(frozen=True)
class Names:
    """Names of the objects in `examples/demo.yaml`."""

    namespace: str = "claude-memory"
    index: str = "claude-memory"
    database: str = "claude_memory"
    secret: str = "claude-memory-db-creds"  # noqa: S105 - a name
    secret_key: str = "DATABASE_URL"  # noqa: S105 - a name

    @property
    def embedder_url(self) -> str:
        """Address of the embedder that the operator runs for the MemoryIndex."""
        return f"http://{self.index}-embedder:8080"


class ClusterEnvironment:
    """A store of memories in a cluster, and a toolbox pod in which the `memory` program runs."""

    def __init__(self, postgres: Postgres, manifest: Path, rows: int, names: Names | None = None) -> None:
        self.driver: str | None = str(postgres.cluster.driver)
        self._cluster = postgres.cluster
        self._postgres = postgres
        self._manifest = manifest
        self._names = names or Names()
        self._deadline = BASE_DEADLINE + rows / ROWS_PER_SECOND_FLOOR

    def prepare(self, image: str) -> None:
        """Create namespace, Secret and toolbox pod, let the namespace use the Cluster, and wait for the pod."""
        names = self._names
        dsn = self._postgres.application_dsn()
        self._postgres.allow(names.namespace)
        self._cluster.apply(objects.namespace(names.namespace))
        self._cluster.apply(objects.dsn_secret(names.namespace, names.secret, names.secret_key, dsn))
        pod = objects.toolbox(
            names.namespace,
            image=image,
            secret=names.secret,
            key=names.secret_key,
            embedder_url=names.embedder_url,
        )
        self._cluster.apply(pod)
        self._kubectl("wait", "--for=condition=Ready", f"pod/{objects.TOOLBOX}", "--timeout=120s")

    def run(self, arguments: Sequence[str], stdin: str | None = None) -> Completed:
        """Run a program in the toolbox pod."""
        interactive = ("-i",) if stdin is not None else ()
        try:
            output = self._kubectl("exec", *interactive, objects.TOOLBOX, "--", *arguments, input=stdin)
        except CommandError as error:
            return Completed(error.returncode, "", error.output)
        return Completed(0, output, "")

    def sql(self, statement: str) -> str:
        """Run an SQL query on the primary with psql and return its output."""
        return self._postgres.psql(statement, self._names.database)

    def create_index(self, console: DemoConsole) -> None:
        """Apply the MemoryIndex from the YAML file, and show the operator's progress until it is ready."""
        console.say(f"  $ kubectl apply -f {self._manifest.name}")
        self._cluster.kubectl("apply", "-f", str(self._manifest))
        with console.step("The operator brings the index") as step:
            seen = self._follow(step)
            step.result = f"Ready: {seen.condition('Ready').message or 'every row embedded, index valid'}"
        console.show(self._kubectl("get", "memoryindexes", "-o", "wide").rstrip())

    def backfill_speed(self) -> Speed | None:
        """Return the speed from the report at the end of the backfill pod's log, or None if there is no report."""
        label = f"app.kubernetes.io/instance={self._names.index},app.kubernetes.io/component=backfill"
        report = last_object(self._kubectl("logs", "-l", label, "--tail=50"), having="rows_per_second")
        return Speed.from_report(report, rows="embedded") if report else None

    def _follow(self, step: Step) -> follow.View:
        before: follow.View | None = None
        seen: Mapping[str, Any] = {}
        with Watch(self._cluster.kubectl_command(*self._scope, "get", "memoryindex", self._names.index)) as watch:
            while step.elapsed < self._deadline:
                seen = watch.next(POLL_SECONDS) or seen
                if not seen:
                    continue
                now = follow.view(seen)
                step.extra = follow.table(now)
                for line in follow.changes(before, now):
                    step.note(line, now=True)
                step.note(follow.summary(now), fraction=now.fraction)
                if now.ready:
                    return now
                before = now
        raise DemoError(
            f"MemoryIndex {self._names.index} was not ready after {self._deadline:.0f} s\n"
            + describe_index(self._cluster, self._names.namespace, seen or self._index())
        )

    def _index(self) -> Mapping[str, Any]:
        return dict(self._cluster.kubectl_json(*self._scope, "get", "memoryindex", self._names.index))

    @property
    def _scope(self) -> tuple[str, str]:
        return ("-n", self._names.namespace)

    def _kubectl(self, *arguments: str, input: str | None = None) -> str:  # noqa: A002 - the handle's own word
        return self._cluster.kubectl(*self._scope, *arguments, input=input)
