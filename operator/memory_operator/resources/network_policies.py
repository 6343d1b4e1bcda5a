"""Build the NetworkPolicies of all pods: which pods may call them, and which servers they may call.

A NetworkPolicy selects pods by labels, and other servers by IP address. The operator does not know the addresses of the
hosts in a connection URI or another URL. Therefore only the port of such a connection is limited. NetworkPolicies are
additive: an author who needs more connections adds another policy. Every pod may read the metrics, because metrics
contain no memory text and the scraper may run in any namespace.
"""

from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from memory_operator.api.embedder import COMPONENT, PORT
from memory_operator.api.spec import HttpSource, Manifest, MemoryIndex
from memory_operator.resources.common import LABEL_COMPONENT, LABEL_NAME, MANAGER, metadata, selector, with_fingerprint
from memory_operator.resources.embedder import NEXT_COMPONENT, PROBE_PORT
from memory_operator.resources.model_fetch import COMPONENT as FETCH_COMPONENT
from memory_operator.resources.model_fetch import DIRECT, FetchRoute
from memory_operator.resources.workers import METRICS_PORT

WORKER_COMPONENTS = ("migrate", "backfill", "index", "swap", "swap-abort", "sync", "graph", "uninstall")
DNS_PORTS = (53, 5353)  # OpenShift's name servers listen on the second, which policies see behind their Service
HTTPS_PORT = 443
POSTGRES_PORT = 5432
LABEL_NAMESPACE = "kubernetes.io/metadata.name"  # Kubernetes itself sets it on every namespace
EVERY_POD: Manifest = {"namespaceSelector": {}}
# Every address but those of a node's link and of metadata services. Some network plugins do not count pods among them.
ELSEWHERE: list[Manifest] = [
    EVERY_POD,
    {
        "ipBlock": {
            "cidr": "0.0.0.0/0",
            "except": ["169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32"],
        }
    },
    {"ipBlock": {"cidr": "::/0", "except": ["fe80::/10", "fd00:ec2::254/128", "fd20:ce::254/128"]}},
]
DNS: Manifest = {"ports": [{"port": port, "protocol": protocol} for port in DNS_PORTS for protocol in ("UDP", "TCP")]}
HTTPS: Manifest = {"ports": [{"port": HTTPS_PORT, "protocol": "TCP"}]}


def embedder_policy(index: MemoryIndex, component: str = COMPONENT, *, operator_namespace: str = "") -> Manifest:
    """Return the NetworkPolicy of embedder pods, which may make no connections.

    The embedder may be called by the pods that `spec.embedder.allowFrom` selects (by default all pods of the
    namespace), by the workers of this MemoryIndex, by all pods of the namespaces that it allows, and by the operator.
    With an empty `operator_namespace`, the policy does not mention the operator.
    """
    allowed = index.spec.embedder.allow_from
    callers: list[Manifest] = [{"podSelector": {}}]
    if allowed is not None:
        callers = [*map(_as_stored, allowed), {"podSelector": _workers(index)}]
    callers += [_namespace(name) for name in sorted(index.allowed_namespaces)]
    if operator_namespace:
        callers.append(
            {
                **_namespace(operator_namespace),
                "podSelector": {"matchLabels": {LABEL_NAME: MANAGER}},
            }
        )
    ingress = [_rule("from", callers, PORT), _rule("from", [EVERY_POD], PROBE_PORT)]
    return _policy(index, component, {"matchLabels": selector(index, component)}, ingress, [])


def fetch_policy(index: MemoryIndex, source: HttpSource, route: FetchRoute = DIRECT) -> Manifest:
    """Return the NetworkPolicy of the Job that fetches a model file.

    The Job may connect to DNS, to the host of the URL and to any other host over HTTPS, because servers of files often
    redirect to another host. Nodes' links and metadata services are excepted. Through a proxy it may connect to DNS and
    the proxy, and to the port of the URL if its host bypasses the proxy. No pod may connect to the Job.
    """
    host = _elsewhere(_to_host(source.url))
    if route.proxy:
        direct = [] if route.leads_through_proxy(source.url) else [host]
        egress = [DNS, _to_proxy(route.proxy), *direct]
    else:
        https = _elsewhere(HTTPS)
        egress = [DNS, https, *([] if host == https else [host])]
    return _policy(index, FETCH_COMPONENT, {"matchLabels": selector(index, FETCH_COMPONENT)}, [], egress)


def worker_policy(
    index: MemoryIndex, database_ports: tuple[int, ...], *, own_pods: bool = False, former: str | None = None
) -> Manifest:
    """Return the NetworkPolicy of workers.

    Workers may connect to DNS, the database and the embedder. A swap needs the embedders of both models: `own_pods`
    says that there are embedder pods although an external embedder is specified, and `former` is the URL of an external
    embedder that is still needed. Other pods may connect to workers only to read metrics.
    """
    ports = sorted({POSTGRES_PORT, *database_ports})
    database: Manifest = {"ports": [{"port": port, "protocol": "TCP"} for port in ports]}
    egress = [DNS, database, *_to_embedders(index, own_pods=own_pods, former=former)]
    return _policy(index, "workers", _workers(index), [_rule("from", [EVERY_POD], METRICS_PORT)], egress)


def _to_embedders(index: MemoryIndex, *, own_pods: bool, former: str | None) -> list[Manifest]:
    external = index.spec.embedder.external
    pods = {"podSelector": _components(index, (COMPONENT, NEXT_COMPONENT))}
    own = [_rule("to", [pods], PORT)] if own_pods or not external else []
    hosts = [_to_host(url) for url in (external.url if external else None, former) if url]
    wanted = [*own, *hosts]
    return [rule for position, rule in enumerate(wanted) if rule not in wanted[:position]]


def _to_host(url: str) -> Manifest:
    """Return the egress rule for the host of a URL: a namespace inside the cluster, else the port alone."""
    parts = urlsplit(url)
    *service, suffix = (parts.hostname or "").removesuffix(".cluster.local").split(".")
    if suffix == "svc" and len(service) > 1:  # a Service may map its port to any port of its pods
        return {"to": [_namespace(service[-1])]}
    port = parts.port or (HTTPS_PORT if parts.scheme == "https" else 80)
    return {"ports": [{"port": port, "protocol": "TCP"}]}


def _elsewhere(rule: Manifest) -> Manifest:
    return rule if "to" in rule else {"to": ELSEWHERE, **rule}


def _to_proxy(url: str) -> Manifest:
    """Return the egress rule for a proxy: its address or its Service's namespace, else its port alone."""
    parts = urlsplit(url)
    port = {"port": parts.port or (HTTPS_PORT if parts.scheme == "https" else 80), "protocol": "TCP"}
    try:
        address = ip_address(parts.hostname or "")
    except ValueError:
        return _elsewhere(_to_host(url))
    return {"to": [{"ipBlock": {"cidr": f"{address}/{address.max_prefixlen}"}}], "ports": [port]}


def _workers(index: MemoryIndex) -> Manifest:
    return _components(index, WORKER_COMPONENTS)


def _components(index: MemoryIndex, components: tuple[str, ...]) -> Manifest:
    labels = {name: value for name, value in selector(index, "").items() if name != LABEL_COMPONENT}
    expression = {"key": LABEL_COMPONENT, "operator": "In", "values": list(components)}
    return {"matchLabels": labels, "matchExpressions": [expression]}


def _namespace(name: str) -> Manifest:
    return {"namespaceSelector": {"matchLabels": {LABEL_NAMESPACE: name}}}


def _as_stored(peer: Manifest) -> Manifest:
    """Return a peer of a NetworkPolicy without empty fields in its selectors, as the API server stores it."""
    return {name: _without_empty(selector) for name, selector in peer.items()}


def _without_empty(value: Any) -> Any:  # noqa: ANN401 - any part of a manifest
    if isinstance(value, dict):
        return {name: _without_empty(part) for name, part in value.items() if part not in ({}, [])}
    return [_without_empty(part) for part in value] if isinstance(value, list) else value


def _rule(direction: str, peers: list[Manifest], port: int) -> Manifest:
    return {direction: peers, "ports": [{"port": port, "protocol": "TCP"}]}


def _policy(
    index: MemoryIndex, component: str, pods: Manifest, ingress: list[Manifest], egress: list[Manifest]
) -> Manifest:
    return with_fingerprint(
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": metadata(index, f"{index.name}-{component}", component),
            "spec": {
                "podSelector": pods,
                "policyTypes": ["Ingress", "Egress"],
                "ingress": ingress,
                "egress": egress,
            },
        }
    )
