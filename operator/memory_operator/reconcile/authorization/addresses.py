"""Decide which hosts and addresses the operator connects to for the author of a MemoryIndex.

The operator reaches addresses that the author may not: nodes, their metadata service, other teams' networks. Therefore
a host must be a Service of the cluster that Kubernetes itself fills with pods, or a host that whoever installs the
operator has listed. A Service of the type ExternalName is a name for any host, and the endpoints of a Service without a
selector are whatever somebody wrote: neither is such a Service. Whoever may write EndpointSlices can add endpoints to
one, which is not read here (SECURITY.md says why). A listed host may have any address but those of the operator's own
pod and node, of their link, of a metadata service, and of the Kubernetes API server's Service. An address may be listed
as it is; other nodes, and what answers for the API server behind its Service, are not known here.
"""

import re
from collections.abc import Collection, Iterable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Literal

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest
from memory_operator.reconcile.facts import Problem

CLUSTER_DOMAIN = "cluster.local"
Use = Literal["database", "embedder"]
_FIELDS = {"database": "The host of the connection URI", "embedder": "The host of spec.embedder.external.url"}
_VALUES = {"database": "permitted.databaseHosts", "embedder": "permitted.externalHosts"}
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAT64 = IPv6Network("64:ff9b::/96")  # an IPv4 address in the last 32 bits, to which a gateway connects
_METADATA = frozenset({"100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"})
# Forms of IPv6 that stand for IPv4 addresses in another network: compatible, translated, local NAT64, Teredo, 6to4.
_TUNNELS = [ip_network(one) for one in ("::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48", "2001::/32", "2002::/16")]
_LOCAL = [ip_network(one) for one in ("0.0.0.0/8", "169.254.0.0/16", "fe80::/10", "fec0::/10")]


def plain_address(text: str) -> str | None:
    """Return an IP address without a zone and as IPv4 where it stands for IPv4; None if the text is no address."""
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return str(_translated(found))


def is_forbidden(address: str, *, excluded: Collection[str] = ()) -> bool:
    """Return whether the operator must not connect to this IP address, whatever host it belongs to.

    `excluded` are the addresses of its own node and of the API server's Service, as `plain_address` writes them.
    """
    found = _translated(ip_address(address.partition("%")[0]))
    special = found.is_loopback or found.is_link_local or found.is_unspecified or found.is_multicast
    networks = any(found in network for network in (*_LOCAL, *_TUNNELS) if network.version == found.version)
    return special or networks or str(found) in _METADATA or str(found) in excluded


def is_listed(host: str, listed: Iterable[str]) -> bool:
    """Return whether a host is in a list of hosts, in which a leading dot stands for every name below it.

    An IP address may be written differently in the list.
    """
    names = [name.lower() for name in listed]
    address = plain_address(host)
    if address:
        return address in map(plain_address, names)
    return host in names or host.endswith(tuple(name for name in names if name.startswith(".")))


def service_of(host: str, namespace: str) -> tuple[str, str] | None:
    """Return namespace and name of the Service that a host can be, seen from a pod of `namespace`; None if it is none.

    A name without a dot is a Service of `namespace`, as for the pods that use the same connection URI.
    """
    labels = host.removesuffix(".").removesuffix(f".{CLUSTER_DOMAIN}").removesuffix(".svc").split(".")
    if plain_address(host) or len(labels) > 2 or not all(_LABEL.fullmatch(label) for label in labels):
        return None
    return (labels[1] if len(labels) == 2 else namespace), labels[0]


def service_addresses(service: Manifest, use: Use, *, excluded: Collection[str] = ()) -> tuple[str, ...] | Problem:
    """Return the cluster IP addresses of a Service that has a selector, or a problem with a Service of another kind.

    Kubernetes makes the endpoints of a Service with a selector from pods; of one without, whoever writes them does.
    """
    meta, spec = service["metadata"], service.get("spec") or {}
    name = f"Service {meta['namespace']}/{meta['name']}"
    addresses = tuple(one for one in spec.get("clusterIPs") or [spec.get("clusterIP")] if one and one != "None")
    if spec.get("type") == "ExternalName":
        return _refused(use, name, "stands for a host outside of the cluster")
    if not spec.get("selector"):
        return _refused(use, name, "has no selector")
    if not addresses:
        return _refused(use, name, "has no address of its own")
    if any(is_forbidden(one, excluded=excluded) for one in addresses):
        return _refused(use, name, "has an address that the operator does not connect to")
    return addresses


def not_permitted(use: Use, host: str) -> Problem:
    """Return the problem of a host that is neither a Service of the cluster nor listed."""
    message = f"{_FIELDS[use]} is {host}, which is no Service of the cluster and which the operator does not permit."
    return Problem(Reason.NOT_PERMITTED, message, f"Have it added to {_VALUES[use]} of the operator's chart.")


def forbidden(use: Use) -> Problem:
    """Return the problem of a listed host all of whose addresses are forbidden. It does not tell the addresses."""
    message = f"{_FIELDS[use]} has only addresses that the operator does not connect to."
    remedy = f"Correct the host, or have the address itself added to {_VALUES[use]} of the operator's chart."
    return Problem(Reason.NOT_PERMITTED, message, remedy)


def _refused(use: Use, service: str, why: str) -> Problem:
    message = f"{_FIELDS[use]} is {service}, which {why}, so that it can be any server."
    remedy = f"Name a Service with a selector and a cluster IP, or have the host added to {_VALUES[use]} of the chart."
    return Problem(Reason.NOT_PERMITTED, message, remedy)


def _translated(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address inside an IPv4-mapped or NAT64 IPv6 address; return any other address unchanged."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped:
        return address.ipv4_mapped
    return IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else address
