"""Verify the certificate of the Kubernetes API server, for both libraries that connect to it: kopf and lightkube.

Since Python 3.13 verification also demands extensions (key usage, key identifiers) that the certificate authorities of
many Kubernetes clusters lack; the operator could not start there. Chain and host name are still verified; only the
extensions are not demanded.
"""

import dataclasses
import ssl

import httpx2
import kopf
from lightkube import AsyncClient, KubeConfig
from lightkube.config.client_adapter import verify_cluster
from lightkube.core.exceptions import ConfigError

from memory_operator.resources.common import MANAGER


def relax(context: ssl.SSLContext) -> ssl.SSLContext:
    """Change the TLS context so that it does not demand the certificate extensions, and return it."""
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


class RelaxedConnection(kopf.ConnectionInfo):
    """The connection settings of kopf, without the demand for certificate extensions."""

    def as_ssl_context(self) -> ssl.SSLContext:
        """Return the TLS context that kopf uses for its requests."""
        return relax(super().as_ssl_context())


def relaxed_connection(found: kopf.ConnectionInfo | None) -> RelaxedConnection | None:
    """Return kopf's settings, which then accept a certificate without these extensions; None without credentials."""
    if found is None:
        return None
    return RelaxedConnection(**{item.name: getattr(found, item.name) for item in dataclasses.fields(found)})


def api_client(config: KubeConfig) -> AsyncClient:
    """Return lightkube's client with a relaxed TLS context; raise ConfigError if no current context is configured."""
    chosen = config.get()
    if chosen is None:
        raise ConfigError("the configuration names no current context")
    if chosen.user is None:
        return AsyncClient(chosen, field_manager=MANAGER, trust_env=False)
    context = relax(verify_cluster(chosen.cluster, chosen.user, chosen.abs_file, trust_env=False))
    transport = httpx2.AsyncHTTPTransport(verify=context)
    return AsyncClient(chosen, field_manager=MANAGER, trust_env=False, transport=transport)
