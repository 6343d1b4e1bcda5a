"""Read the certificate of an embedder out of its Secret.

A Secret of cert-manager's form also holds the private key, and the API server sends all of a Secret or nothing. Of the
key it is only noted that it is there: the embedder, which mounts it, says in its metrics if it does not belong to the
certificate.
"""

from contextlib import suppress

from cryptography import x509

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest
from memory_operator.clients.object_facts import secret_value
from memory_operator.reconcile.facts import Problem, ServingCertificate
from memory_operator.resources.embedder import CERTIFICATE_KEY, PRIVATE_KEY

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


def _hosts(certificate: x509.Certificate) -> tuple[str, ...]:
    with suppress(x509.ExtensionNotFound):
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return tuple(name.lower() for name in names.get_values_for_type(x509.DNSName))
    return ()
