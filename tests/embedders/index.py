"""An index whose texts a third-party server embeds: what has to be true of it."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from devcluster.demo import objects
from devcluster.errors import DevclusterError
from tests.embedders.servers import DIMENSIONS, NAMESPACE, PORT, REFERENCE, Server, other_model_objects
from tests.support.cluster.memories import rows, sensitive
from tests.support.cluster.platform import Platform
from tests.support.cluster.tenants import Tenant
from tests.support.waiting import eventually

FAR = {
    "OpenAI": "api.openai.com",
    "TEI": "tei.example.com",
    "Voyage": "api.voyageai.com",
    "Cohere": "api.cohere.com",
}
"""A server beyond the cluster by each API, which nothing answers for; the operator permits its host."""

_ROWS = rows(60)
_LATER = rows(5, first=1000)
_RECALLS = 10
_ALIKE = 0.999  # the cosine of one text's vectors in two engines of the same model; without its prefix it is lower
_COMPARING = Path(__file__).with_name("comparing.py")
_SECONDS = 300.0


@dataclass
class Outcome:
    """What was found with one server. `prefix_applied` is None where the server puts prefixes itself."""

    server: str
    ready: bool = False
    backfilled: bool = False
    recall_errors: int = 0
    prefix_applied: bool | None = None
    swap_noticed: bool = False
    agree: bool = False
    faults: list[str] = field(default_factory=list)


def prove_server(platform: Platform, server: Server) -> Outcome:
    """Have a server embed for an index; say what was found, and what kept the rest from being tried."""
    outcome = Outcome(server.name)
    deployment = ("rollout", "status", f"deployment/{server.name}", f"--timeout={_SECONDS:.0f}s")
    tenant = Tenant(platform.postgres, f"uses-{server.name}", platform.image)
    try:
        platform.cluster.kubectl("-n", NAMESPACE, *deployment, timeout=_SECONDS + 30)
        _use(tenant, server, outcome)
        _replace_model(tenant, server, outcome)
    except (AssertionError, DevclusterError) as error:
        outcome.faults.append(str(error)[-2000:])
    return outcome


def egress_refusals(platform: Platform) -> list[bool]:
    """Return for each server beyond the cluster whether an index without consent is refused, and gets no worker."""
    tenant = Tenant(platform.postgres, "egress", platform.image)
    tenant.create()
    tenant.store(_ROWS)
    found = []
    for api, host in FAR.items():
        external = {"url": f"https://{host}", "api": api}
        try:
            tenant.apply_index(embedding={"model": "m", "dimensions": DIMENSIONS}, embedder={"external": external})
        except DevclusterError as error:
            found.append("queryEgress" in str(error))
            continue
        stalled = _refusal_of(tenant, host)
        workers = tenant.kubectl("get", "deployments,jobs", "-o", "name")
        found.append("queryEgress" in stalled and not workers.strip())
    tenant.remove()
    return found


def _refusal_of(tenant: Tenant, host: str) -> str:
    """Wait until the index is stalled with a message that names `host`, and return the message."""

    def names_the_host(said: str) -> bool:
        return host in said

    return eventually(lambda: str(tenant.view().stalled), names_the_host, what=f"{host} refused", seconds=60)


def _use(tenant: Tenant, server: Server, outcome: Outcome) -> None:
    tenant.create()
    tenant.store(_ROWS)
    embedding = {"model": server.model, "dimensions": DIMENSIONS}
    tenant.apply_index(embedding=embedding, embedder={"external": {**server.external, "model": "another-name"}})
    tenant.wait_condition("EmbedderReady", "ModelMismatch", seconds=_SECONDS)
    named_wrongly = tenant.embedded() == 0
    tenant.apply_index(embedding=embedding, embedder={"external": server.external})
    tenant.wait_ready(_SECONDS)
    outcome.ready = True
    outcome.backfilled = tenant.embedded() == len(_ROWS) - sensitive(_ROWS)
    outcome.agree = named_wrongly and outcome.backfilled
    tenant.start_toolbox()
    asked = {
        "MEMORY_MODEL": server.model,
        "MEMORY_EMBEDDER_URL": str(server.external["url"]),
        "MEMORY_EMBEDDER_API": "OpenAI",
        "MEMORY_EMBEDDER_SERVED_AS": server.served_as,
    }
    for row in _ROWS[:_RECALLS]:
        answer = tenant.memory("recall", row.content, "--everyone", settings=asked)
        outcome.recall_errors += bool(answer.get("degraded")) or not answer.get("memories")
    if server.prefixed:
        cosines = _compared(tenant, server)
        outcome.prefix_applied = cosines["with"] >= _ALIKE > cosines["without"]
        if not outcome.prefix_applied:
            outcome.faults.append(f"cosines {cosines}")


def _replace_model(tenant: Tenant, server: Server, outcome: Outcome) -> None:
    """Put another model in the server's place, under the same name, and start the worker anew."""
    tenant.cluster.apply(*other_model_objects(server))
    where = ("rollout", "status", f"deployment/{server.name}-other-model", f"--timeout={_SECONDS:.0f}s")
    tenant.cluster.kubectl("-n", NAMESPACE, *where, timeout=_SECONDS + 30)
    before = tenant.embedded()
    tenant.kubectl("delete", "pod", "-l", "app.kubernetes.io/component=sync", "--wait=true")
    tenant.add(_LATER)
    conditions = eventually(
        lambda: json.dumps(tenant.index()["status"]["conditions"]),
        lambda text: "ModelMismatch" in text,
        what=f"another model at {server.name} is noticed",
        seconds=_SECONDS,
    )
    outcome.swap_noticed = "ModelMismatch" in conditions and tenant.embedded() == before


def _compared(tenant: Tenant, server: Server) -> dict[str, Any]:
    arguments = (
        str(server.external["url"]),
        server.model,
        server.served_as,
        f"http://{REFERENCE}.{NAMESPACE}.svc:{PORT}",
    )
    script = _COMPARING.read_text(encoding="utf-8")
    printed = tenant.kubectl("exec", "-i", objects.TOOLBOX, "--", "python", "-", *arguments, input=script)
    found: dict[str, Any] = json.loads(printed.strip().splitlines()[-1])
    return found
