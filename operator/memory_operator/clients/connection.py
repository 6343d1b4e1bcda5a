"""Connect kopf and the operator's own client to the Kubernetes API server, as the pod or KUBECONFIG says.

The certificate chain and the host name of the API server are verified. The certificate extensions (key usage, key
identifiers) that Python demands since version 3.13 are not demanded, because the certificate authorities of many
Kubernetes clusters do not set them.
"""

import dataclasses
import ssl

import kopf
from kubernetes.aio import config
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException


class NoConnectionError(Exception):
    """The connection settings for a Kubernetes API server are missing or cannot be read."""


async def configuration() -> Configuration:
    """Return the connection settings for the operator's own requests.

    Raises:
        NoConnectionError: neither the pod nor KUBECONFIG has connection settings, or they cannot be read.
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
    """The connection settings of kopf, with TLS verification that demands no certificate extensions."""

    def as_ssl_context(self) -> ssl.SSLContext:
        """Return the TLS context of kopf's requests, which demands no certificate extensions."""
        context = super().as_ssl_context()
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context


def relaxed_connection(found: kopf.ConnectionInfo | None) -> RelaxedConnection | None:
    """Return kopf's connection settings as a `RelaxedConnection`, or None if kopf has found no settings."""
    if found is None:
        return None
    return RelaxedConnection(**{item.name: getattr(found, item.name) for item in dataclasses.fields(found)})
