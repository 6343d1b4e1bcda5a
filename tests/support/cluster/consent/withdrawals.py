"""Withdraw each consent of an object that embeds all the time, and count the texts that leave afterwards.

Each tenant has an external embedder, which records when texts come, and a table to which a row is added twice a
second. All consents are withdrawn at about the same time. A minute later no text may come any more. Then all are given
back, and every row must get its vector.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import urlsplit

from tests.support.cluster.consent.recorder import HOSTS, Recorder, url
from tests.support.cluster.memories import rows
from tests.support.cluster.platform import PERMITTED, Platform
from tests.support.cluster.tenants import SECRET, Tenant
from tests.support.waiting import eventually

LIMIT_SECONDS = 60.0
_MARGIN_SECONDS = 15.0  # for which texts are awaited beyond the limit
_KEY_SECRET = "embedder-key"
_LABEL = "memory-index.dev/allow"
_ANNOTATION = "memory-index.dev/allowed-namespaces"
_MANY_ROWS = 4000  # for a Job that still runs when its consent is withdrawn
_PERMITTED = "permitted.externalHosts={{embedder.embedder.svc,{hosts}}}"
# Each iteration is a transaction of its own, of which the sync worker is notified.
_WRITE = """
DO $$ BEGIN FOR number IN 1..{count} LOOP
    INSERT INTO memories (content) VALUES ('note that came later: ' || number || clock_timestamp()); COMMIT;
    PERFORM pg_sleep(0.5);
END LOOP; END $$
"""


@dataclass(frozen=True)
class Scene:
    """A tenant whose consent is withdrawn, in the platform."""

    platform: Platform
    tenant: Tenant

    def label(self, secret: str, value: str) -> None:
        """Set the label of a Secret that says what it may be used for, or remove it with an empty value."""
        change = f"{_LABEL}={value}" if value else f"{_LABEL}-"
        self.tenant.kubectl("label", "secret", secret, "--overwrite", change)

    def annotate(self, *, allowed: bool) -> None:
        """Allow the tenant's namespace in the annotation of the Postgres cluster, or no longer."""
        postgres = self.tenant.postgres
        if allowed:
            postgres.allow(self.tenant.name)
            return
        where = ("-n", postgres.namespace)
        found = self.tenant.cluster.kubectl_json(*where, "get", "clusters.postgresql.cnpg.io", postgres.name)
        names = [name for name in found["metadata"]["annotations"][_ANNOTATION].split(",") if name != self.tenant.name]
        line = f"{_ANNOTATION}={','.join(names)}"
        self.tenant.cluster.kubectl(
            *where, "annotate", "--overwrite", "clusters.postgresql.cnpg.io", postgres.name, line
        )

    def permit(self, *hosts: str) -> None:
        """Permit these hosts of the recording embedder in the operator's chart, and no other."""
        permit(self.platform, *hosts)

    def claim(self, **changes: str) -> None:
        """Change the claim on the tenant's table."""
        claim = json.loads(self.tenant.sql("SELECT obj_description('memory_index_state'::regclass)"))
        text = json.dumps(claim | changes).replace("'", "''")
        self.tenant.sql(f"COMMENT ON TABLE memory_index_state IS '{text}'")

    def lead_to(self, database: str) -> None:
        """Let the connection URI lead to another database of the same server."""
        parts = urlsplit(self.tenant.dsn)
        self.tenant.write_secret(parts._replace(path=f"/{database}").geturl())


@dataclass(frozen=True)
class Withdrawal:
    """A consent: how it is withdrawn and given back, the reason that the status must have, and the rows at first."""

    withdraw: Callable[[Scene], None]
    give_back: Callable[[Scene], None]
    reason: str
    host: str = "kept"
    rows: int = 12


def _label(secret: str, value: str, scene: Scene) -> None:
    scene.label(secret, value)


_URI = Withdrawal(partial(_label, SECRET, ""), partial(_label, SECRET, "dsn"), "ConsentMissing")
WITHDRAWALS: Mapping[str, Withdrawal] = {
    "annotation": Withdrawal(
        lambda scene: scene.annotate(allowed=False), lambda scene: scene.annotate(allowed=True), "ConsentMissing"
    ),
    "uri-label": _URI,
    "key-label": Withdrawal(
        partial(_label, _KEY_SECRET, ""), partial(_label, _KEY_SECRET, "api-key"), "ConsentMissing"
    ),
    "claim": Withdrawal(
        lambda scene: scene.claim(uid="somebody-else", kubernetes="another"),
        lambda scene: scene.claim(uid=scene.tenant.index()["metadata"]["uid"], kubernetes=_kubernetes(scene)),
        "TableTaken",
    ),
    "database": Withdrawal(
        lambda scene: scene.lead_to("postgres"),
        lambda scene: scene.tenant.write_secret(scene.tenant.dsn),
        "DatabaseNameMismatch",
    ),
    "uri-label-in-a-backfill": replace(_URI, rows=_MANY_ROWS),
    "host": Withdrawal(
        lambda scene: scene.permit(HOSTS["kept"]),
        lambda scene: scene.permit(*HOSTS.values()),
        "NotPermitted",
        host="struck",
    ),
}


@dataclass(frozen=True)
class Outcome:
    """What came after one withdrawal: the seconds until the last text, the texts later than a minute, what was said."""

    seconds: float
    texts_after: int
    message: str


def permit(platform: Platform, *hosts: str) -> None:
    """Permit these hosts beside the shared embedder's in the operator's chart."""
    platform.install(_PERMITTED.format(hosts=",".join(hosts)))


@contextmanager
def recording(platform: Platform) -> Iterator[Recorder]:
    """Start the recording embedder, and permit its hosts for the block."""
    recorder = Recorder(platform.cluster)
    recorder.start(platform.image)
    permit(platform, *HOSTS.values())
    try:
        yield recorder
    finally:
        recorder.remove()
        platform.install(*PERMITTED)


def run_withdrawals(platform: Platform, say: Callable[[str], None]) -> dict[str, Outcome]:
    """Withdraw each consent, and return by name what came afterwards."""
    scenes = {
        name: Scene(platform, Tenant(platform.postgres, f"withdrawn-{name}", platform.image)) for name in WITHDRAWALS
    }
    with recording(platform) as recorder, ThreadPoolExecutor(2 * len(scenes)) as pool:
        try:
            say("preparing")
            list(pool.map(lambda scene: scene.tenant.create(), scenes.values()))
            list(pool.map(prepare, scenes.values(), WITHDRAWALS.values()))
            say("withdrawing")
            at, writers = _withdraw_all(pool, scenes)
            messages = dict(zip(scenes, pool.map(stopped, scenes.values(), WITHDRAWALS.values()), strict=True))
            time.sleep(max(0.0, max(at.values()) + LIMIT_SECONDS + _MARGIN_SECONDS - time.time()))
            outcomes = {
                name: _outcome(recorder, scene.tenant, at[name], messages[name]) for name, scene in scenes.items()
            }
            say("giving back")
            for writer in writers:
                writer.result()
            for name, scene in scenes.items():
                WITHDRAWALS[name].give_back(scene)
            list(pool.map(complete, scenes.values()))
        finally:
            list(pool.map(lambda scene: scene.tenant.remove(), scenes.values()))
    return outcomes


def prepare(scene: Scene, withdrawal: Withdrawal) -> None:
    """Fill the tenant's table, and wait until its sync worker or its backfill Job sends texts."""
    tenant = scene.tenant
    tenant.store(rows(withdrawal.rows, sensitive_every=1_000_000))
    tenant.as_owner("SELECT setval('memories_id_seq', (SELECT max(id) FROM memories))")
    tenant.kubectl("create", "secret", "generic", _KEY_SECRET, "--from-literal=apiKey=any")
    scene.label(_KEY_SECRET, "api-key")
    external = {"url": url(tenant.name, withdrawal.host), "apiKey": {"secretName": _KEY_SECRET}}
    tenant.apply_index(embedder={"external": external})
    if withdrawal.rows > _MANY_ROWS // 2:
        tenant.wait_embedded(1)
    else:
        tenant.wait_ready()


def write_rows(scene: Scene, seconds: float) -> None:
    """Add a row to the tenant's table twice a second."""
    scene.tenant.sql(" ".join(_WRITE.format(count=int(2 * seconds)).split()))


def stopped(scene: Scene, withdrawal: Withdrawal) -> str:
    """Wait until the status says so and no pod that could send texts is left; return the message of Ready."""
    tenant = scene.tenant
    seen = eventually(
        lambda: tenant.view().condition("Ready"),
        lambda found: (found.status, found.reason) == ("False", withdrawal.reason) and " stopped" in found.message,
        what=f"{tenant.name} says {withdrawal.reason} and what is stopped",
    )
    senders = "app.kubernetes.io/component in (sync, backfill, swap)"
    eventually(
        lambda: tenant.kubectl("get", "pods", "-l", senders, "--field-selector=status.phase=Running", "-o", "name"),
        lambda found: not found,
        what=f"no worker of {tenant.name}",
    )
    return seen.message


def complete(scene: Scene) -> None:
    """Wait until the object is Ready again and every row has a vector."""
    scene.tenant.wait_ready()
    eventually(
        lambda: scene.tenant.sql("SELECT count(*) FROM memories WHERE embedding IS NULL"),
        lambda pending: pending == "0",
        what=f"every row of {scene.tenant.name} has a vector",
    )


def _withdraw_all(pool: ThreadPoolExecutor, scenes: Mapping[str, Scene]) -> tuple[dict[str, float], list[Future[None]]]:
    writers = [pool.submit(write_rows, scene, LIMIT_SECONDS + 2 * _MARGIN_SECONDS) for scene in scenes.values()]
    at = {}
    for name, scene in scenes.items():
        at[name] = time.time()
        WITHDRAWALS[name].withdraw(scene)
    return at, writers


def _outcome(recorder: Recorder, tenant: Tenant, at: float, message: str) -> Outcome:
    texts = recorder.texts(tenant.name)
    later = [text for text in texts if text.at > at]
    after = sum(text.count for text in later if text.at > at + LIMIT_SECONDS)
    return Outcome(round(max((text.at - at for text in later), default=0.0), 1), after, message)


def _kubernetes(scene: Scene) -> str:
    return str(scene.tenant.cluster.read("/api/v1/namespaces/kube-system")["metadata"]["uid"])
