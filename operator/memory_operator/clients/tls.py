"""Trust in the API server's certificate, for both libraries that talk to it.

Since Python 3.13 verification also demands extensions (key usage, key identifiers) that the authorities of many
running clusters do not have, and the operator could not even start there. The chain and the name are verified all
the same; only that strictness is off.
"""

import dataclasses
import ssl

import httpx2
import kopf
from lightkube import AsyncClient, KubeConfig
from lightkube.config.client_adapter import verify_cluster
from lightkube.core.exceptions import ConfigError

from memory_operator.resources.common import MANAGER


def relaxed(context: ssl.SSLContext) -> ssl.SSLContext:
    """The context without the demands on extensions."""
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


class Connection(kopf.ConnectionInfo):
    """kopf's connection with a relaxed context."""

    def as_ssl_context(self) -> ssl.SSLContext:
        """The context that kopf uses for its requests."""
        return relaxed(super().as_ssl_context())


def connection(found: kopf.ConnectionInfo | None) -> Connection | None:
    """Kopf's connection, made ours."""
    if found is None:
        return None
    return Connection(**{item.name: getattr(found, item.name) for item in dataclasses.fields(found)})


def client(config: KubeConfig) -> AsyncClient:
    """The client that reads and writes; its configuration is the cluster's own or the one that KUBECONFIG names."""
    chosen = config.get()
    if chosen is None:
        raise ConfigError("the configuration names no current context")
    if chosen.user is None:
        return AsyncClient(chosen, field_manager=MANAGER, trust_env=False)
    context = relaxed(verify_cluster(chosen.cluster, chosen.user, chosen.abs_file, trust_env=False))
    transport = httpx2.AsyncHTTPTransport(verify=context)
    return AsyncClient(chosen, field_manager=MANAGER, trust_env=False, transport=transport)
