"""The Kubernetes API, reduced to what the operator does with it: read, server-side apply, delete.

Objects are plain dictionaries; typed models would drop the fields of newer API versions. Every write goes through
here under one field manager and is counted. Errors of the HTTP library leave this module only as KubeError; a kind
that the server does not know (CloudNativePG is not installed) is told apart from an object that is missing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx2
from lightkube import AsyncClient
from lightkube.core.exceptions import ApiError
from lightkube.generic_resource import create_namespaced_resource
from lightkube.types import CascadeType, PatchType

from memory_operator.api.spec import FINALIZER, Manifest
from memory_operator.resources.common import MANAGER

_KINDS = {
    "MemoryIndex": ("memory-index.dev", "v1alpha1", "memoryindexes"),
    "Secret": ("", "v1", "secrets"),
    "Pod": ("", "v1", "pods"),
    "Service": ("", "v1", "services"),
    "Deployment": ("apps", "v1", "deployments"),
    "Job": ("batch", "v1", "jobs"),
    "NetworkPolicy": ("networking.k8s.io", "v1", "networkpolicies"),
    "Cluster": ("postgresql.cnpg.io", "v1", "clusters"),
    "Database": ("postgresql.cnpg.io", "v1", "databases"),
}
_REFUSALS = {400, 403, 422}  # the request itself is unwelcome: permissions, quota, admission, validation


@dataclass(frozen=True)
class KubeError(Exception):
    """A request that failed; `refused` where sending it again cannot help."""

    action: str
    code: int
    message: str
    refused: bool = False

    def __str__(self) -> str:
        return f"{self.action}: {self.message}"


class KindMissingError(Exception):
    """The server does not know this kind."""


@cache  # the library refuses to make a class of the core group twice
def _resource(kind: str) -> Any:  # noqa: ANN401 - the library makes the class at run time
    group, version, plural = _KINDS[kind]
    return create_namespaced_resource(group, version, kind, plural)


class Kube:
    """Reads and writes of namespaced objects."""

    def __init__(self, client: AsyncClient, on_write: Callable[[str, str], None]) -> None:
        self._client = client
        self._on_write = on_write

    async def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """The object, or None where it does not exist."""
        try:
            return dict(await self._client.get(_resource(kind), name, namespace=namespace))
        except ApiError as error:
            if error.status.code == 404:
                return None
            raise _converted(f"reading {kind} {namespace}/{name}", error) from None
        except httpx2.HTTPError as error:
            raise _unreachable(f"reading {kind} {namespace}/{name}", error) from None

    async def list(self, kind: str, namespace: str, labels: dict[str, str] | None = None) -> list[Manifest]:
        """The objects of a namespace that carry the labels, with the kind and apiVersion that items of a list lack."""
        group, version, _ = _KINDS[kind]
        head = {"apiVersion": f"{group}/{version}".lstrip("/"), "kind": kind}
        try:
            found = self._client.list(_resource(kind), namespace=namespace, labels=dict(labels) if labels else None)
            return [{**head, **item} async for item in found]
        except ApiError as error:
            if error.status.code == 404:
                raise KindMissingError(kind) from None
            raise _converted(f"listing {kind} in {namespace}", error) from None
        except httpx2.HTTPStatusError as error:
            # a group that is not installed is answered in plain text, which the library leaves as it is
            if error.response.status_code == 404:
                raise KindMissingError(kind) from None
            raise _unreachable(f"listing {kind} in {namespace}", error) from None
        except httpx2.HTTPError as error:
            raise _unreachable(f"listing {kind} in {namespace}", error) from None

    async def apply(self, manifest: Manifest) -> None:
        """Create or change an object; fields that others own and we claim become ours."""
        await self._patch(manifest["kind"], manifest)

    async def apply_status(self, namespace: str, name: str, status: Manifest) -> None:
        """Write the status of a MemoryIndex; fields left out that were ours before are removed."""
        manifest = {**_identity(namespace, name), "status": status}
        await self._patch("MemoryIndex", manifest, status=True)

    async def set_finalizer(self, namespace: str, name: str, *, present: bool) -> None:
        """Put our finalizer on a MemoryIndex or take it off; other finalizers stay."""
        manifest = _identity(namespace, name)
        manifest["metadata"]["finalizers"] = [FINALIZER] if present else []
        await self._patch("MemoryIndex", manifest)

    async def delete(self, kind: str, namespace: str, name: str) -> None:
        """Delete an object, its dependents in the background; nothing happens where it does not exist."""
        self._on_write(kind, "delete")
        try:
            await self._client.delete(_resource(kind), name, namespace=namespace, cascade=CascadeType.BACKGROUND)
        except ApiError as error:
            if error.status.code != 404:
                raise _converted(f"deleting {kind} {namespace}/{name}", error) from None
        except httpx2.HTTPError as error:
            raise _unreachable(f"deleting {kind} {namespace}/{name}", error) from None

    async def _patch(self, kind: str, manifest: Manifest, *, status: bool = False) -> None:
        meta = manifest["metadata"]
        resource = _resource(kind).Status if status else _resource(kind)
        self._on_write(kind, "status" if status else "apply")
        action = f"applying {kind} {meta['namespace']}/{meta['name']}"
        try:
            await self._client.patch(
                resource, meta["name"], manifest, namespace=meta["namespace"], patch_type=PatchType.APPLY,
                field_manager=MANAGER, force=True,
            )  # fmt: skip
        except ApiError as error:
            raise _converted(action, error) from None
        except httpx2.HTTPError as error:
            raise _unreachable(action, error) from None


def _identity(namespace: str, name: str) -> Manifest:
    return {
        "apiVersion": "memory-index.dev/v1alpha1",
        "kind": "MemoryIndex",
        "metadata": {"name": name, "namespace": namespace},
    }


def _converted(action: str, error: ApiError) -> KubeError:
    code = error.status.code or 0
    return KubeError(action, code, error.status.message or "no message", refused=code in _REFUSALS)


def _unreachable(action: str, error: httpx2.HTTPError) -> KubeError:
    if isinstance(error, httpx2.HTTPStatusError):
        code = error.response.status_code
        return KubeError(action, code, f"the API server, or what stands before it, answered HTTP {code}")
    return KubeError(action, 0, f"the API server cannot be reached ({type(error).__name__})")
