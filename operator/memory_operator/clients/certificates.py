"""Read the certificate of an embedder, or of a role of the database, out of its Secret.

A Secret of cert-manager's form also holds the private key, and the API server sends all of a Secret or nothing. Of an
embedder's key it is only noted that it is there: the embedder, which mounts it, says in its metrics if it does not
belong to the certificate. With a role's certificate and key the operator itself logs in.
"""

import ssl
from contextlib import suppress

from cryptography import x509
from cryptography.x509.oid import NameOID

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest
from memory_operator.clients.object_facts import secret_value
from memory_operator.reconcile.authorization.client_certificate import FIELD as ROLE_FIELD
from memory_operator.reconcile.facts import Problem, RoleCertificate, ServingCertificate
from memory_operator.resources.common import CERTIFICATE_KEY, PRIVATE_KEY
from memory_recall.errors import InvalidConfiguration
from memory_recall.postgres.client_certificate import ClientCertificate

_FIELD = "spec.embedder.tls.secretName"


def serving_certificate(secret: Manifest | None, location: str) -> ServingCertificate | Problem:
    """Return for which hosts and when the certificate of a Secret is valid, or why it cannot be served.

    `location` is the Secret's namespace/name.
    """
    text = secret_value(secret, location, CERTIFICATE_KEY, holds="the embedder's certificate", named_by=_FIELD)
    if isinstance(text, Problem):
        return text
    if not ((secret or {}).get("data") or {}).get(PRIVATE_KEY):
        message = f"Secret {location} has no key {PRIVATE_KEY}, which should hold that of the embedder's certificate."
        return Problem(Reason.SECRET_KEY_MISSING, message, f"Add the key to the Secret, or correct {_FIELD}.")
    try:
        found, *_ = x509.load_pem_x509_certificates(text.encode())
        hosts = _hosts(found)
    except ValueError:
        message = f"Key {CERTIFICATE_KEY} of Secret {location} holds no certificate in PEM form."
        return Problem(Reason.SECRET_INVALID, message, f"Have the certificate issued anew, or correct {_FIELD}.")
    return ServingCertificate(location, hosts, found.not_valid_before_utc, found.not_valid_after_utc)


def role_certificate(secret: Manifest | None, location: str) -> tuple[RoleCertificate, ClientCertificate] | Problem:
    """Return of which user and when the certificate of a Secret is valid, and the pair, or why it cannot be used.

    `location` is the Secret's namespace/name.
    """
    holds = {CERTIFICATE_KEY: "the certificate of the database's role", PRIVATE_KEY: "the key of that certificate"}
    texts = [secret_value(secret, location, key, holds=what, named_by=ROLE_FIELD) for key, what in holds.items()]
    for text in texts:
        if isinstance(text, Problem):
            return text
    pair = ClientCertificate(*(str(text) for text in texts))
    try:
        pair.load(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        found, *_ = x509.load_pem_x509_certificates(str(texts[0]).encode())
        user = next((str(one.value) for one in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)), "")
    except InvalidConfiguration as error:
        return Problem(Reason.CERTIFICATE_INVALID, f"Secret {location}: {error.message}", error.remedy)
    except ValueError:
        message = f"Key {CERTIFICATE_KEY} of Secret {location} holds no certificate in PEM form."
        return Problem(Reason.CERTIFICATE_INVALID, message, f"Have it issued anew, or correct {ROLE_FIELD}.")
    return RoleCertificate(location, user, found.not_valid_before_utc, found.not_valid_after_utc), pair


def _hosts(certificate: x509.Certificate) -> tuple[str, ...]:
    with suppress(x509.ExtensionNotFound):
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return tuple(name.lower() for name in names.get_values_for_type(x509.DNSName))
    return ()
