"""Read the certificates of the authority that a database server is verified by."""

from memory_operator.api.spec import MemoryIndex
from memory_operator.clients import object_facts
from memory_operator.clients.kube import Kube, KubeError
from memory_operator.reconcile.authorization.database_tls import ca_secret, certificates_of, unreadable_authority
from memory_operator.reconcile.facts import ClusterFacts, Problem

_HOLDS = "the certificate authority of the database"


async def read_authority(kube: Kube, index: MemoryIndex, cluster: ClusterFacts | Problem | None) -> str | Problem:
    """Return the certificates in PEM form, or the problem that prevents it; an empty text if none are used.

    Of a Cluster that may not be used, nothing is read.
    """
    secret = ca_secret(index, cluster if isinstance(cluster, ClusterFacts) else None)
    if secret is None:
        return ""
    namespace, name, key = secret
    location = f"{namespace}/{name}"
    try:
        found = await kube.get("Secret", namespace, name)
    except KubeError as error:
        if not error.refused:
            raise
        return unreadable_authority(location)
    return certificates_of(object_facts.secret_value(found, location, key, holds=_HOLDS), location)
