"""Decide whether an embedder's certificate can be served, and keep the copies of the authorities that verify embedders.

The operator looks at the certificate in the Secret before it rolls out pods with it. A pod whose files cannot be used
runs and is not ready, so that a mistake in the Secret ends no serving pod, and needs no restart once it is corrected.
"""

from datetime import datetime

from memory_operator.api.conditions import Verdict
from memory_operator.api.embedder import COMPONENT, CaConfigMap, service_host
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest, MemoryIndex
from memory_operator.reconcile.facts import Observed, Problem
from memory_operator.reconcile.plan import Action, apply_drifted, delete_existing, failed_step
from memory_operator.resources.certificates import KIND
from memory_operator.resources.embedder_ca import copied_authority, embedder_ca_config_map

_FAULTS = {
    "missing": "its files are missing",
    "too_large": "a file of it is larger than 1 MiB",
    "unreadable": "its files hold no certificate of a server with an unencrypted key",
    "key_mismatch": "the key does not belong to the certificate",
    "expired": "the certificate has expired",
    "not_yet_valid": "the certificate is not valid yet",
}


def certificate_obstacle(
    index: MemoryIndex, observed: Observed, now: datetime, component: str = COMPONENT
) -> Verdict | None:
    """Return why the embedder of a component cannot serve the certificate of its Secret; None if it can.

    The result is also None if it needs none.
    """
    found = observed.certificate
    if not index.serves_tls or found is None:
        return None
    if isinstance(found, Problem):
        return failed_step(found).verdict
    where = f"The certificate of Secret {found.location}"
    if now >= found.not_after:
        return Verdict.no(
            Reason.CERTIFICATE_INVALID, f"{where} has expired on {found.not_after:%Y-%m-%d at %H:%M} UTC."
        )
    if now < found.not_before:
        since = f"{found.not_before:%Y-%m-%d at %H:%M} UTC"
        return Verdict.no(Reason.CERTIFICATE_INVALID, f"{where} is valid only from {since}.")
    host = service_host(index.namespace, index.name, component)
    if not names_host(found.hosts, host):
        remedy = f"Add {host} to its DNS names (dnsNames of cert-manager's Certificate)."
        return Verdict.no(Reason.CERTIFICATE_INVALID, f"{where} is not for the host {host}.", remedy)
    return None


def refused_by_pod(index: MemoryIndex, observed: Observed) -> Verdict | None:
    """Return a failing verdict if a pod reports that it does not use the files of its Secret; None if none does."""
    tls = index.spec.embedder.tls
    if tls is None or not index.runs_embedder:
        return None
    for load in observed.loads:
        if load.certificate_fault in _FAULTS:
            message = f"Pod {load.pod} does not use Secret {index.namespace}/{tls.secret_name}: "
            return Verdict.no(Reason.CERTIFICATE_INVALID, f"{message}{_FAULTS[load.certificate_fault]}.")
    return None


def names_host(names: tuple[str, ...], host: str) -> bool:
    """Return whether a certificate with these DNS names is for a host; a wildcard stands for its first label."""
    return host in names or f"*.{host.partition('.')[2]}" in names


def plan_embedder_ca(index: MemoryIndex, observed: Observed) -> tuple[Action, ...]:
    """Return the writes that keep the workers' copies of the authorities of embedders that the operator runs.

    What cannot be read at the moment stays as it was copied.
    """
    name = copied_authority(index, (index.namespace, index.name)).name
    present: Manifest = (observed.children.get((KIND, name)) or {}).get("data") or {}
    found = {
        key: text if isinstance(text, str) else str(present.get(key) or "")
        for key, text in observed.embedder_authorities.items()
    }
    files = {key: text for key, text in found.items() if text}
    if not files:
        return delete_existing(observed, (KIND, name))
    return apply_drifted(observed, embedder_ca_config_map(index, files))


def has_copy(present: Manifest, authority: CaConfigMap) -> bool:
    """Return whether the ConfigMap of the copies, as it is now, has this one."""
    return bool((present.get("data") or {}).get(authority.key))
