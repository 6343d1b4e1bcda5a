"""Connect to the Kubernetes API server, with the credentials of the pod or of KUBECONFIG; both for kopf and for us.

Since Python 3.13 verification also demands extensions (key usage, key identifiers) that the certificate authorities of
many Kubernetes clusters lack; the operator could not start there. Chain and host name are still verified; only the
extensions are not demanded.
"""

import dataclasses
import ssl

import kopf
from kubernetes.aio import config
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException


class NoConnectionError(Exception):
    """Neither the pod nor KUBECONFIG says how to reach a Kubernetes API server."""


async def configuration() -> Configuration:
    """Return the connection settings of our own requests.

    Raises:
        NoConnectionError: there are none, or they cannot be read.
    """
    found = Configuration(client_session_kwargs={"trust_env": False})
    found.disable_strict_ssl_verification = True
    try:
        try:
            config.load_incluster_config(found)
        except ConfigException:
            await config.load_kube_config(client_configuration=found, persist_config=False)
    except (ConfigException, OSError) as error:
        raise NoConnectionError(str(error)) from None
    return found


class RelaxedConnection(kopf.ConnectionInfo):
    """The connection settings of kopf, without the demand for certificate extensions."""

    def as_ssl_context(self) -> ssl.SSLContext:
        """Return the TLS context that kopf uses for its requests."""
        context = super().as_ssl_context()
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context


def relaxed_connection(found: kopf.ConnectionInfo | None) -> RelaxedConnection | None:
    """Return kopf's settings, which then accept a certificate without these extensions; None without credentials."""
    if found is None:
        return None
    return RelaxedConnection(**{item.name: getattr(found, item.name) for item in dataclasses.fields(found)})
