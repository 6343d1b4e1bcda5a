"""Reads one MemoryIndex and its Events from the Kubernetes API server, with the permissions of the user's kubeconfig.

The Kubernetes client is an optional dependency that only `memory status --kube` needs. Therefore this is
the only module that imports the client, and it does so only when a MemoryIndex is read. The client's exceptions become
those of `memory_recall.errors`.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from memory_recall.errors import InvalidConfiguration, InvalidInput, KubernetesRejected, KubernetesUnreachable

TIMEOUT_SECONDS = 15.0
EVENT_LIMIT = 500
_MESSAGE_CHARACTERS = 300
_PATH = "/apis/memory-index.dev/v1alpha1/namespaces/{namespace}/memoryindexes/{name}"
_EVENTS = "/api/v1/namespaces/{namespace}/events"
_INSTALL = "Install it with: pip install 'memory-recall[cli,kube]'"

Object = Mapping[str, Any]


@dataclass(frozen=True)
class Place:
    """The name of a MemoryIndex, and where to find it.

    If `kubeconfig` is None, the file that `kubectl` would use is read. If `context` is None, the current context of the
    file is used. If `namespace` is None, it is the namespace of the context or, if the context has none, `default`.
    """

    name: str
    namespace: str | None = None
    kubeconfig: Path | None = None
    context: str | None = None


@dataclass(frozen=True)
class Found:
    """A MemoryIndex and the Events about it; `events` is None if the user may not list Events."""

    resource: Object
    events: Sequence[Object] | None


async def read(place: Place) -> Found:
    """Return the MemoryIndex at `place` and its Events.

    Raises:
        InvalidConfiguration: the Kubernetes client is not installed, or the kubeconfig cannot be used.
        InvalidInput: there is no such MemoryIndex.
        KubernetesRejected: the API server refuses the request.
        KubernetesUnreachable: the API server does not answer in time.
    """
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await _read(place)
    except TimeoutError:
        raise _unreachable("no answer in time") from None


async def _read(place: Place) -> Found:
    api, namespace = await _open(place)
    async with api:
        path = _PATH.format(namespace=quote(namespace, safe=""), name=quote(place.name, safe=""))
        resource = await _get(api, path, missing=f"There is no MemoryIndex {namespace}/{place.name}.")
        selector = f"involvedObject.uid={resource['metadata']['uid']}"
        try:
            listed = await _get(api, _EVENTS.format(namespace=quote(namespace, safe="")), field_selector=selector)
        except KubernetesRejected:
            return Found(resource, None)
    return Found(resource, listed["items"])


async def _open(place: Place) -> tuple[Any, str]:
    """Return a client of the API server that `place` selects, and the namespace of the MemoryIndex."""
    library = _library()
    config, configuration = library.config, library.client.Configuration()
    # since Python 3.13 certificates need extensions that those of many clusters lack; chain and host are still verified
    configuration.disable_strict_ssl_verification = True
    from yaml import YAMLError  # what the Kubernetes client raises at a file that is no YAML

    file = str(place.kubeconfig) if place.kubeconfig else None
    try:
        contexts, current = config.list_kube_config_contexts(file)
        # nothing is ever written to the user's file
        await config.load_kube_config(file, place.context, configuration, persist_config=False)
    except (config.ConfigException, YAMLError, OSError, ValueError, TypeError, AttributeError) as error:
        # the last two are raised at YAML that is no kubeconfig
        cause = str(error)[:_MESSAGE_CHARACTERS] if isinstance(error, config.ConfigException) else type(error).__name__
        raise InvalidConfiguration(
            f"The kubeconfig cannot be used: {cause}.", "Name another with --kubeconfig or --context."
        ) from None
    chosen = next((entry for entry in contexts if entry["name"] == place.context), current)
    api = library.client.ApiClient(configuration)
    return api, place.namespace or chosen["context"].get("namespace") or "default"


async def _get(
    api: Any,  # noqa: ANN401 - the library has no types
    path: str,
    *,
    missing: str = "",
    field_selector: str | None = None,
) -> Object:
    """Return the JSON object at `path`; if there is none, raise InvalidInput with the message `missing`."""
    library = _library()
    from aiohttp import ClientError  # what the Kubernetes client is built on

    try:
        answer = await library.dynamic.DynamicClient(api).request(
            "get", path, field_selector=field_selector, limit=EVENT_LIMIT if field_selector else None, serialize=False
        )
        found: Object = await answer.json()
    except library.dynamic.exceptions.NotFoundError:
        remedy = "`kubectl get memoryindexes --all-namespaces` lists them; -n names the namespace."
        raise InvalidInput(missing or f"The API server does not know {path}.", remedy) from None
    except library.dynamic.exceptions.DynamicApiError as error:
        message = f"The API server refuses to show {path}: {_message(error.status, error.body)}"
        raise KubernetesRejected(message, "Use an account that may read it.") from None
    except (ClientError, ValueError) as error:
        raise _unreachable(type(error).__name__) from None
    return found


def _library() -> Any:  # noqa: ANN401 - its functions have no types
    """Import the optional Kubernetes client, and return its package."""
    try:
        import kubernetes.aio.client
        import kubernetes.aio.config
        import kubernetes.aio.dynamic.exceptions
    except ImportError:
        raise InvalidConfiguration("The Kubernetes client is not installed.", _INSTALL) from None
    return kubernetes.aio


def _unreachable(cause: str) -> KubernetesUnreachable:
    return KubernetesUnreachable(
        f"The Kubernetes API server gives no usable answer ({cause}).", "Check that `kubectl get namespaces` works."
    )


def _message(status: int, body: object) -> str:
    """Return the message in the body of an error answer or, if it has none, the HTTP status."""
    try:
        said = json.loads(str(body)).get("message")
    except (ValueError, AttributeError):
        said = None
    return str(said)[:_MESSAGE_CHARACTERS] if said else f"HTTP {status}"
