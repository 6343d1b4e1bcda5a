"""Decide how the database server is verified, and keep the certificates that the workers trust for it.

With CloudNativePG the default is the strictest mode with the Cluster's own certificate authority. Only the certificates
are taken out of the authority's Secret, which the Cluster names, and only under the Cluster's consent.
"""

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest, MemoryIndex
from memory_operator.reconcile.facts import ClusterFacts, Observed, Problem
from memory_operator.reconcile.plan import Action, apply_drifted, delete_existing
from memory_operator.resources.certificates import KIND
from memory_operator.resources.database_ca import ca_config_map, ca_name
from memory_recall.errors import InvalidConfiguration
from memory_recall.postgres.client_certificate import ClientCertificate
from memory_recall.postgres.tls import DatabaseTls, TlsMode, check_certificates, only_certificates

_MODES = {"Require": TlsMode.REQUIRE, "VerifyCA": TlsMode.VERIFY_CA, "VerifyFull": TlsMode.VERIFY_FULL}
_OTHERWISE = {
    "database": "name the certificates in spec.database.tls.caSecret, or set spec.database.tls.mode to Require",
    "embedder": "name the certificates in spec.embedder.external.caSecret",
    "serving": "remove its key ca.crt if public authorities verify the embedder",
}


def tls_mode(index: MemoryIndex) -> TlsMode | None:
    """Return the minimum TLS mode of connections to the database; None if the connection URI alone decides."""
    return _MODES[index.database_tls_mode] if index.database_tls_mode else None


def ca_secret(index: MemoryIndex, cluster: ClusterFacts | None) -> tuple[str, str, str] | None:
    """Return namespace, name and key of the Secret with the authority's certificates; None if none is needed."""
    named = index.spec.database.tls.ca_secret
    if not index.has_database_ca:
        return None
    if named:
        return index.namespace, named.name, named.key
    return (cluster.namespace, cluster.ca_secret, "ca.crt") if cluster else None


def database_tls(index: MemoryIndex, certificates: str, client: ClientCertificate | None = None) -> DatabaseTls:
    """Return what the operator itself demands of the database server, and the certificate that it shows it."""
    return DatabaseTls(tls_mode(index), certificates or None, client)


def certificates_of(text: str | Problem, location: str, verified: str = "database") -> str | Problem:
    """Return the certificates of a Secret's text, or a problem if it has none or the text itself is a problem.

    `verified` is what they verify: "database", "embedder" for an external one, or "serving" for one that the operator
    runs.
    """
    if isinstance(text, Problem):
        return Problem(text.reason, text.message, f"Create it, or {_OTHERWISE[verified]}.")
    found = only_certificates(text)
    try:
        check_certificates(found)
    except InvalidConfiguration as error:
        remedy = f"Correct it, or {_OTHERWISE[verified]}."
        return Problem(Reason.SECRET_INVALID, f"Secret {location}: {error.message}", remedy)
    return found


def unreadable_authority(location: str, verified: str) -> Problem:
    """Return the problem of a Secret that the operator's own rights do not let it read."""
    if verified != "database":
        message = f"The operator may not read Secret {location}, which holds the certificate authority of the embedder."
        namespace = location.partition("/")[0]
        return Problem(
            Reason.NOT_PERMITTED, message, f"Have {namespace} added to watchNamespaces of the operator's chart."
        )
    message = f"The operator may not read Secret {location}, which holds the certificate authority of the database."
    permit = "Have it added to databaseNamespaces and cnpg.authoritySecrets of the operator's chart"
    return Problem(Reason.NOT_PERMITTED, message, f"{permit}, or {_OTHERWISE['database']}.")


def plan_database_ca(index: MemoryIndex, observed: Observed) -> tuple[Action, ...]:
    """Return the writes that keep the workers' copy of the CA certificates equal to the Secret it was copied from."""
    if not index.has_database_ca:
        return delete_existing(observed, (KIND, ca_name(index)))
    wanted: list[Manifest] = [ca_config_map(index, observed.database_ca)] if observed.database_ca else []
    return apply_drifted(observed, *wanted)
