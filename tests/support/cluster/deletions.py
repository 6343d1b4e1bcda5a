"""Deletes a MemoryIndex, or its whole namespace, in situations in which the deletion could hang.

In one situation, for example, the Secret has been deleted before. All cases run side by side, under an operator that is
bound to their namespaces, because Kubernetes may then delete the operator's Role in a namespace before the MemoryIndex.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from devcluster.demo import follow, objects
from devcluster.postgres import Postgres, create_postgres, database_object
from tests.support.cluster.api import INDEXES
from tests.support.cluster.memories import rows
from tests.support.cluster.platform import PERMITTED, Platform
from tests.support.cluster.tenants import INDEX, SECRET, SMALL, Tenant, manifest
from tests.support.waiting import eventually

POLICIES = ("Retain", "Delete")
SITUATIONS = ("ready", "half-migrated", "secret-gone", "cluster-gone", "role-gone-first", "foreign-finalizer")
FOREGROUND = "foreground"
FINALIZER = "memory-index.dev/cleanup"
GONE_SECONDS = 60.0  # in which a namespace or an object must be gone
PREPARATION_SECONDS = 180.0
NOWHERE = {"requests": {"cpu": "500"}}  # no node has as much: an embedder that is not needed costs nothing
HOLDER = "/* holds the table */"
COLUMN = "SELECT count(*) FROM pg_attribute WHERE attrelid = 'memories'::regclass AND attname = 'embedding'"

State = tuple[str, str, str]  # a condition with its status and reason
READY: State = ("Ready", "True", "Ready")
MIGRATED: State = ("SchemaReady", "True", "Migrated")
MIGRATING: State = ("SchemaReady", "False", "Migrating")
DISTURBED: dict[str, State] = {
    "secret-gone": ("DatabaseReachable", "False", "SecretMissing"),
    "cluster-gone": ("DatabaseReachable", "False", "ClusterMissing"),
}


@dataclass(frozen=True)
class Case:
    """A deletion policy, Retain or Delete, and the situation in which a MemoryIndex with this policy is deleted."""

    policy: str
    situation: str

    def __str__(self) -> str:
        return f"{self.policy}-{self.situation}".lower()

    @property
    def namespace(self) -> str:
        """Name of the namespace that is created for the case."""
        return f"end-{self}"

    @property
    def messages(self) -> int:
        """How many Events must name what stays: no Job can undo migrations in a namespace that is being deleted."""
        return 1 if self.policy == "Delete" and self.situation != FOREGROUND else 0

    @property
    def prepared(self) -> State:
        """The condition, with status and reason, that the MemoryIndex must reach before anything is deleted."""
        states = {"ready": READY, FOREGROUND: READY, "half-migrated": MIGRATING}
        return states.get(self.situation, MIGRATED)


NAMESPACES = [Case(policy, situation) for situation in SITUATIONS for policy in POLICIES]
CASES = [Case(policy, FOREGROUND) for policy in POLICIES] + NAMESPACES
# One of each way in which a deletion goes on; none of them needs a second Postgres cluster.
FEW_CASES = [
    Case("Delete", FOREGROUND),
    Case("Retain", "ready"),
    Case("Delete", "secret-gone"),
    Case("Retain", "role-gone-first"),
]


@dataclass(frozen=True)
class Outcome:
    """What is left of a case a minute after the deletion.

    `left` is the MemoryIndex as YAML, or empty if it is gone. `database_objects` are the names of its Database objects,
    and `messages` those of the Events with reason LeftBehind. `has_column` says whether the table still has the vector
    column, and is None if the Postgres cluster has been deleted.
    """

    left: str
    database_objects: str
    messages: tuple[str, ...]
    has_column: bool | None

    @property
    def gone(self) -> bool:
        """Whether neither the MemoryIndex nor a Database object of it is left."""
        return not self.left and not self.database_objects


@dataclass
class Endings:
    """Runs the cases; `doomed` is the Postgres cluster that is deleted first in the situation cluster-gone."""

    platform: Platform
    doomed: Postgres
    cases: Sequence[Case]
    _tenants: dict[Case, Tenant] = field(default_factory=dict)

    def run(self) -> dict[Case, Outcome]:
        """Run the cases side by side, and return the outcome of each."""
        self.platform.postgres.wait_ready()
        for case in self.cases:
            postgres = self.doomed if case.situation == "cluster-gone" else self.platform.postgres
            self._tenants[case] = Tenant(postgres, case.namespace, self.platform.image)
        with ThreadPoolExecutor(8) as pool:
            self._create(pool)
            with _held_tables(pool, [self._tenants[case] for case in self.cases if case.prepared == MIGRATING]):
                for case in self.cases:
                    self._apply(case)
                self._await({case: case.prepared for case in self.cases})
                self._disturb()
                self._await({case: DISTURBED[case.situation] for case in self.cases if case.situation in DISTURBED})
                left = self._delete()
            outcomes = dict(
                zip(self.cases, pool.map(lambda case: self._outcome(case, left[case]), self.cases), strict=True)
            )
            list(pool.map(self._remove, self.cases))
        return outcomes

    def _create(self, pool: ThreadPoolExecutor) -> None:
        """Create the cases' namespaces and databases, and bind the operator to the namespaces once they exist."""
        cluster, shared = self.platform.postgres.cluster, self.platform.postgres
        doomed = pool.submit(self._create_doomed)
        cluster.apply(*(objects.namespace(case.namespace) for case in self.cases))
        settings = (
            f"watchNamespaces={{{','.join(case.namespace for case in self.cases)}}}",
            f"databaseNamespaces={{{shared.namespace}}}",
        )
        bound = pool.submit(self.platform.install, *settings)
        list(pool.map(_fill, (tenant for tenant in self._tenants.values() if tenant.postgres is shared)))
        doomed.result()
        list(pool.map(_fill, (tenant for tenant in self._tenants.values() if tenant.postgres is not shared)))
        bound.result()

    def _create_doomed(self) -> None:
        """Create the Postgres cluster that is deleted, where a case needs it."""
        if any(case.situation == "cluster-gone" for case in self.cases):
            shared = self.platform.postgres
            create_postgres(shared.cluster, namespace=shared.namespace, name=self.doomed.name, cpu="100m")

    def _apply(self, case: Case) -> None:
        resources = SMALL if case.prepared == READY else NOWHERE
        tenant = self._tenants[case]
        wanted = manifest(tenant, {"deletionPolicy": case.policy, "embedder__resources": resources})
        if case.situation == "foreign-finalizer":
            # kubectl then owns it, as the tool that restores a backup does
            wanted["metadata"]["finalizers"] = [FINALIZER]
        tenant.cluster.apply(wanted)
        tenant.cluster.apply(_own_database_object(tenant))

    def _await(self, states: Mapping[Case, State]) -> None:
        """Wait until the MemoryIndex of each case has the condition in `states`, with that status and reason."""

        def missing() -> dict[str, follow.Condition]:
            seen = {item["metadata"]["namespace"]: follow.view(item) for item in self._objects()}
            conditions = {case: seen[case.namespace].condition(kind) for case, (kind, _, _) in states.items()}
            return {
                str(case): condition
                for case, condition in conditions.items()
                if (condition.status, condition.reason) != states[case][1:]
            }

        eventually(missing, lambda left: not left, what="every object prepared", seconds=PREPARATION_SECONDS, poll=1)

    def _disturb(self) -> None:
        """Delete the Secret, the Postgres cluster or the Roles in the cases whose situation asks for it."""
        roles = [f"{kind}/memory-operator{suffix}" for kind in ("rolebinding", "role") for suffix in ("", "-databases")]
        for case, tenant in self._tenants.items():
            if case.situation == "secret-gone":
                tenant.kubectl("delete", "secret", SECRET)
            elif case.situation == "role-gone-first":
                tenant.kubectl("delete", *roles)
        named = ("clusters.postgresql.cnpg.io", self.doomed.name)
        self.doomed.cluster.kubectl("-n", self.doomed.namespace, "delete", *named, "--ignore-not-found")

    def _delete(self) -> dict[Case, str]:
        """Delete all namespaces and objects at once, and wait at most a minute.

        Return for each case the MemoryIndex that is left, as YAML, or the namespace that is left without one, or an
        empty text if both are gone.
        """
        kubectl = self.platform.postgres.cluster.kubectl
        kubectl("delete", "namespace", *(case.namespace for case in self._namespaces()), "--wait=false")
        for case in self.cases:
            if case.situation == FOREGROUND:
                self._tenants[case].kubectl("delete", "memoryindex", INDEX, "--cascade=foreground", "--wait=false")

        def left() -> set[str]:
            found = self.platform.cluster.read("/api/v1/namespaces")["items"]
            deleted = {case.namespace for case in self._namespaces()} & {item["metadata"]["name"] for item in found}
            return deleted | {item["metadata"]["namespace"] for item in self._objects()}

        try:
            eventually(left, lambda found: not found, what="all gone", seconds=GONE_SECONDS, poll=1)
        except AssertionError:
            stuck = left()
            return {case: self._left(case) if case.namespace in stuck else "" for case in self.cases}
        return dict.fromkeys(self.cases, "")

    def _namespaces(self) -> list[Case]:
        """Return the cases in which the whole namespace is deleted."""
        return [case for case in self.cases if case.situation != FOREGROUND]

    def _outcome(self, case: Case, left: str) -> Outcome:
        tenant, namespace = self._tenants[case], self.platform.postgres.namespace
        where, ours = ("-n", namespace), f"memory-index.dev/namespace={tenant.name}"
        found = tenant.cluster.kubectl(*where, "get", "databases.postgresql.cnpg.io", "-l", ours, "-o", "name")
        events = tenant.cluster.kubectl_json(*where, "get", "events", "--field-selector=reason=LeftBehind")["items"]
        subject = f"MemoryIndex {tenant.name}/{INDEX} "
        return Outcome(
            left=left,
            database_objects=found.strip(),
            messages=tuple(event["message"] for event in events if event["message"].startswith(subject)),
            has_column=tenant.sql(COLUMN) == "1" if tenant.postgres is self.platform.postgres else None,
        )

    def _remove(self, case: Case) -> None:
        """Remove what is left of a case, even if the case failed."""
        tenant = self._tenants[case]
        if self._described(case):
            tenant.kubectl("patch", "memoryindex", INDEX, "--type=merge", '--patch={"metadata":{"finalizers":[]}}')
        tenant.cluster.kubectl("delete", "namespace", tenant.name, "--wait=false", "--ignore-not-found")
        if tenant.postgres is self.platform.postgres:
            tenant.postgres.psql(f"DROP DATABASE IF EXISTS {tenant.database} WITH (FORCE)")

    def _objects(self) -> Iterable[Mapping[str, Any]]:
        found = self.platform.cluster.read(f"{INDEXES}/memoryindexes")["items"]
        ours = {case.namespace for case in self.cases}
        return [item for item in found if item["metadata"]["namespace"] in ours]

    def _left(self, case: Case) -> str:
        return self._described(case) or f"namespace {case.namespace}"

    def _described(self, case: Case) -> str:
        return self._tenants[case].kubectl("get", "memoryindex", INDEX, "--ignore-not-found", "-o", "yaml")


def delete_cases(platform: Platform, cases: Sequence[Case]) -> dict[Case, Outcome]:
    """Run the cases side by side, and return the outcome of each; the operator is cluster-wide again afterwards."""
    shared = platform.postgres
    try:
        return Endings(platform, Postgres(shared.cluster, shared.namespace, "pg-doomed"), cases).run()
    finally:
        platform.install(*PERMITTED)


def _own_database_object(tenant: Tenant) -> dict[str, Any]:
    """Return a Database object with what the operator gives to those that it creates for the tenant's MemoryIndex."""
    made = database_object(tenant.postgres, tenant.database)
    made["metadata"]["annotations"] = {"memory-index.dev/uid": tenant.index()["metadata"]["uid"]}
    made["metadata"]["labels"] = {
        "app.kubernetes.io/managed-by": "memory-operator",
        "memory-index.dev/name": INDEX,
        "memory-index.dev/namespace": tenant.name,
    }
    return made


def _fill(tenant: Tenant) -> None:
    tenant.create()
    tenant.store(rows(12))


@contextmanager
def _held_tables(pool: ThreadPoolExecutor, tenants: list[Tenant]) -> Iterator[None]:
    """Lock the tenants' tables during the block, so that rows can be counted but no column can be added."""
    hold = f"BEGIN; LOCK TABLE memories IN SHARE MODE; SELECT pg_sleep({2 * PREPARATION_SECONDS:.0f}) {HOLDER};"
    end = (
        f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE '%{HOLDER}%'"
        " AND datname = current_database() AND pid <> pg_backend_pid()"
    )
    holders: list[Future[str]] = [pool.submit(tenant.sql, hold) for tenant in tenants]
    try:
        yield
    finally:
        for tenant, holder in zip(tenants, holders, strict=True):
            tenant.sql(end)
            holder.exception()  # waits for the session that was just terminated
