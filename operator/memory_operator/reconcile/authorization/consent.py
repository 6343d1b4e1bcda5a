"""Decide whether the owners of a Cluster, of a Secret and of another object's embedder consent to their use.

The operator may read Secrets and change the databases of every team, but the author of a MemoryIndex may lack these
rights. Therefore a Cluster lists in an annotation the other namespaces that may use it, and so does a MemoryIndex for
its embedder. A Secret says by a label whether it may be used as a connection URI, as an API key or as the certificate
of a role. Only somebody who may change the Cluster or the Secret can set the annotation or the label. The consent to an
embedder ends with its MemoryIndex, since its name is free then.

A Secret that CloudNativePG wrote for the application user of the object's own Cluster needs no label. It is recognised
by the Cluster's uid in its owner reference. Only somebody who may write Secrets in that namespace can forge the
reference.
"""

from collections.abc import Collection, Sequence
from typing import Any, Literal

from memory_operator.api.conditions import Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import ANNOTATION_ALLOWED_NAMESPACES, Manifest, MemoryIndex
from memory_operator.reconcile.facts import ClusterFacts, Observed, Problem
from memory_operator.reconcile.plan import failed_step

LABEL_ALLOW = "memory-index.dev/allow"
SecretUse = Literal["dsn", "api-key", "client-certificate"]
_BECOMES = {"dsn": "a connection URI", "api-key": "an API key", "client-certificate": "a client certificate"}
_USER_TYPE = "cnpg.io/userType"
_MOST_NAMED = 10  # objects in a message, however many there are
_MISSING = {Reason.CONSENT_MISSING, Reason.NOT_PERMITTED}


def check_cluster(index: MemoryIndex, cluster: ClusterFacts) -> Problem | None:
    """Return why the Cluster must not be used, or None if it may be used.

    It may be used from its own namespace and from the namespaces that it allows.
    """
    if index.namespace in {cluster.namespace, *cluster.allowed_namespaces}:
        return None
    kind = "cluster.postgresql.cnpg.io"
    return _not_allowed(index, str(cluster), (kind, cluster.namespace, cluster.name), cluster.allowed_namespaces)


def check_embedder_owner(index: MemoryIndex, named: tuple[str, str], owner: MemoryIndex | None) -> Problem | None:
    """Return why the embedder of another MemoryIndex must not be used, or None if it may be used.

    `named` are namespace and name of that object, and `owner` is the object, None if there is none. Its embedder may be
    used from its own namespace and from the namespaces that it allows.
    """
    namespace, name = named
    subject = f"MemoryIndex {namespace}/{name}"
    if owner is None:
        message = f"{subject}, whose embedder is to be used, does not exist or has an invalid specification."
        return Problem(Reason.EMBEDDER_NOT_SHARED, message)
    if index.namespace not in {namespace, *owner.allowed_namespaces}:
        return _not_allowed(index, subject, ("memoryindex", namespace, name), owner.allowed_namespaces)
    return None


def users_of(referring: Sequence[str]) -> str:
    """Return the names of those who use an embedder as a part of a sentence; of many only the first ones."""
    named, more = referring[:_MOST_NAMED], len(referring) - _MOST_NAMED
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def _not_allowed(index: MemoryIndex, subject: str, place: tuple[str, str, str], allowed: Collection[str]) -> Problem:
    """Return the missing consent of the subject, an object whose kind, namespace and name are its `place`."""
    kind, namespace, name = place
    present = "PRESENT_NAMES," if allowed else ""  # the names of other teams are not for this status
    line = (
        f"kubectl -n {namespace} annotate {kind} {name} --overwrite "
        f"{ANNOTATION_ALLOWED_NAMESPACES}={present}{index.namespace}"
    )
    message = f"{subject} does not allow MemoryIndex objects of namespace {index.namespace}; this line does: `{line}`."
    return Problem(Reason.CONSENT_MISSING, message)


def check_secret(
    namespace: str, secret: Manifest | None, use: SecretUse, *, cluster: ClusterFacts | None = None
) -> Problem | None:
    """Return why a Secret of this namespace must not be put to this use.

    The result is None if the use is allowed, or if the Secret does not exist. `cluster` is the Cluster of the
    MemoryIndex. The Secret of its application user needs no label for the use "dsn".
    """
    if secret is None:
        return None
    meta = secret["metadata"]
    given = meta.get("labels") or {}
    is_own = use == "dsn" and cluster is not None and _is_of_application_user(meta, given, cluster)
    if given.get(LABEL_ALLOW) == use or is_own:
        return None
    overwrite = "--overwrite " if LABEL_ALLOW in given else ""
    line = f"kubectl -n {namespace} label secret {meta['name']} {overwrite}{LABEL_ALLOW}={use}"
    where = f"Secret {namespace}/{meta['name']}"
    message = f"{where} may not be used as {_BECOMES[use]}; this line allows it: `{line}`."
    return Problem(Reason.CONSENT_MISSING, message)


def missing_consent(observed: Observed) -> Verdict | None:
    """Return a failing verdict about the first missing consent or permission, or None if none is missing."""
    return no_database_consent(observed) or _first_missing(observed.external, observed.active_external)


def no_database_consent(observed: Observed) -> Verdict | None:
    """Return a failing verdict if the Cluster or the connection URI may not be used, else None."""
    return _first_missing(observed.cluster, observed.credentials)


def _first_missing(*found: object) -> Verdict | None:
    missing = (one for one in found if isinstance(one, Problem) and one.reason in _MISSING)
    return next((failed_step(problem).verdict for problem in missing), None)


def _is_of_application_user(meta: Manifest, labels: dict[str, Any], cluster: ClusterFacts) -> bool:
    owners = meta.get("ownerReferences") or ()
    owned = any(owner.get("controller") and owner.get("uid") == cluster.uid for owner in owners)
    return bool(owned and cluster.uid and meta["namespace"] == cluster.namespace and labels.get(_USER_TYPE) == "app")
