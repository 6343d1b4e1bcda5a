"""Read and write Kubernetes objects, reduced to what the operator needs: read, server-side apply, delete.

Objects are plain dictionaries; typed models would drop the fields of newer API versions. Every write goes through here
under one field manager and is counted. An existing object that is not the operator's is never overwritten. Errors of
the HTTP library leave this module only as KubeError. Listing a kind that the Kubernetes API server does not know
(CloudNativePG is not installed) raises KindMissingError.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import httpx2
from lightkube import ALL_NS, AsyncClient
from lightkube.core.exceptions import ApiError
from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from lightkube.types import CascadeType, PatchType

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import FINALIZER, Manifest
from memory_operator.resources.common import MANAGER
from memory_operator.resources.ownership import is_former, is_ours

_KINDS = {
    "MemoryIndex": ("memory-index.dev", "v1alpha1", "memoryindexes"),
    "Secret": ("", "v1", "secrets"),
    "Pod": ("", "v1", "pods"),
    "Service": ("", "v1", "services"),
    "Deployment": ("apps", "v1", "deployments"),
    "Job": ("batch", "v1", "jobs"),
    "PodDisruptionBudget": ("policy", "v1", "poddisruptionbudgets"),
    "NetworkPolicy": ("networking.k8s.io", "v1", "networkpolicies"),
    "Event": ("", "v1", "events"),
    "Cluster": ("postgresql.cnpg.io", "v1", "clusters"),
    "Database": ("postgresql.cnpg.io", "v1", "databases"),
}
EVERY_NAMESPACE = ALL_NS
_Namespace = create_global_resource("", "v1", "Namespace", "namespaces")
_REFUSALS = {400, 403, 422}  # the request itself is unwelcome: permissions, quota, admission, validation


class KubeError(Exception):
    """A request failed. `refused`: repeating it cannot help; `code`: the HTTP status, or 0 if no answer came."""

    reason = Reason.WRITE_REFUSED

    def __init__(self, action: str, code: int, message: str, *, refused: bool = False) -> None:
        super().__init__(f"{action}: {message}")
        self.action = action
        self.code = code
        self.message = message
        self.refused = refused

    @property
    def text(self) -> str:
        """The message of a condition if the Kubernetes API server refused the request."""
        return f"The API server refuses {self.action}: {self.message}"


class NameTakenError(KubeError):
    """An object of another owner already has the needed name; `refused` unless that object will vanish soon."""

    reason = Reason.NAME_TAKEN

    @property
    def text(self) -> str:
        """The message of a condition about the taken name."""
        return self.message


class KindMissingError(Exception):
    """The Kubernetes API server does not know this kind of object."""


@cache  # the library refuses to make a class of the core group twice
def _resource(kind: str) -> Any:  # noqa: ANN401 - the library makes the class at run time
    group, version, plural = _KINDS[kind]
    return create_namespaced_resource(group, version, kind, plural)


class Kube:
    """Reads and writes namespaced Kubernetes objects."""

    def __init__(self, client: AsyncClient, on_write: Callable[[str, str], None]) -> None:
        self._client = client
        self._on_write = on_write

    async def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """Return the object, or None if it does not exist."""
        with _converted_errors(f"reading {kind} {namespace}/{name}"):
            try:
                return dict(await self._client.get(_resource(kind), name, namespace=namespace))
            except ApiError as error:
                if error.status.code != 404:
                    raise
        return None

    async def list(self, kind: str, namespace: str, labels: dict[str, str] | None = None) -> list[Manifest]:
        """Return the objects that carry the labels, in one namespace or, for EVERY_NAMESPACE, in all.

        Kind and apiVersion, which the items of a list lack, are added to each.

        Raises:
            KindMissingError: the server does not know the kind.
        """
        group, version, _ = _KINDS[kind]
        head = {"apiVersion": f"{group}/{version}".lstrip("/"), "kind": kind}
        try:
            with _converted_errors(f"listing {kind} in {namespace}"):
                found = self._client.list(_resource(kind), namespace=namespace, labels=dict(labels) if labels else None)
                return [{**head, **item} async for item in found]
        except KubeError as error:
            if error.code == 404:
                raise KindMissingError(kind) from None
            raise

    async def apply(self, manifest: Manifest) -> None:
        """Create or change an object of the operator by server-side apply; take over fields of other managers.

        Raises:
            NameTakenError: an object of this name exists and is not the operator's.
        """
        kind, meta = manifest["kind"], manifest["metadata"]
        live = await self.get(kind, meta["namespace"], meta["name"])
        if live is not None and not is_ours(manifest, live):
            message = f"{kind} {meta['namespace']}/{meta['name']} exists and does not belong to this MemoryIndex."
            refused = not is_former(manifest, live)
            raise NameTakenError(f"applying {kind} {meta['namespace']}/{meta['name']}", 409, message, refused=refused)
        await self._patch(kind, manifest)

    async def create(self, manifest: Manifest) -> None:
        """Create an object; do nothing if an object of this name exists."""
        kind, meta = manifest["kind"], manifest["metadata"]
        self._on_write(kind, "create")
        with _converted_errors(f"creating {kind} {meta['namespace']}/{meta['name']}"):
            try:
                await self._client.create(_resource(kind)(manifest), namespace=meta["namespace"])  # type: ignore[call-overload]  # made at run time
            except ApiError as error:
                if error.status.code != 409:
                    raise

    async def apply_status(self, namespace: str, name: str, status: Manifest) -> None:
        """Replace the status of a MemoryIndex: fields that the operator wrote before and are missing now vanish."""
        manifest = {**_identity(namespace, name), "status": status}
        await self._patch("MemoryIndex", manifest, status=True)

    async def set_finalizer(self, manifest: Manifest, *, present: bool) -> None:
        """Add the operator's finalizer to this MemoryIndex, or remove it; other finalizers stay.

        This is a JSON patch, because server-side apply removes only fields that it added, and the finalizer may come
        from a restored backup or from `kubectl create`.

        Raises:
            KubeError: the object has changed since it was read.
        """
        meta = manifest["metadata"]
        others = [name for name in meta.get("finalizers") or () if name != FINALIZER]
        patch = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": meta["resourceVersion"]},
            {"op": "add", "path": "/metadata/finalizers", "value": [*others, *([FINALIZER] if present else [])]},
        ]
        action = f"writing the finalizers of MemoryIndex {meta['namespace']}/{meta['name']}"
        self._on_write("MemoryIndex", "finalizer")
        with _converted_errors(action):
            try:
                await self._client.patch(
                    _resource("MemoryIndex"), meta["name"], patch, namespace=meta["namespace"],
                    patch_type=PatchType.JSON, field_manager=MANAGER,
                )  # fmt: skip
            except ApiError as error:
                if error.status.code == 422:
                    raise KubeError(action, 409, "the object has changed since it was read") from None
                if error.status.code != 404:
                    raise

    async def is_terminating(self, namespace: str) -> bool:
        """Return whether the namespace is being deleted or gone; False if the operator may not read it."""
        with _converted_errors(f"reading Namespace {namespace}"):
            try:
                found = await self._client.get(_Namespace, namespace)
            except ApiError as error:
                if error.status.code not in {403, 404}:
                    raise
                return error.status.code == 404
        return "deletionTimestamp" in found["metadata"]

    async def delete(self, kind: str, namespace: str, name: str) -> None:
        """Delete an object, and its dependents in the background; do nothing if it does not exist."""
        self._on_write(kind, "delete")
        with _converted_errors(f"deleting {kind} {namespace}/{name}"):
            try:
                await self._client.delete(_resource(kind), name, namespace=namespace, cascade=CascadeType.BACKGROUND)
            except ApiError as error:
                if error.status.code != 404:
                    raise

    async def _patch(self, kind: str, manifest: Manifest, *, status: bool = False) -> None:
        meta = manifest["metadata"]
        resource = _resource(kind).Status if status else _resource(kind)
        self._on_write(kind, "status" if status else "apply")
        with _converted_errors(f"applying {kind} {meta['namespace']}/{meta['name']}"):
            await self._client.patch(
                resource, meta["name"], manifest, namespace=meta["namespace"], patch_type=PatchType.APPLY,
                field_manager=MANAGER, force=True,
            )  # fmt: skip


@contextmanager
def _converted_errors(action: str) -> Iterator[None]:
    """Convert errors of the HTTP library to KubeError, and leave out the network addresses in their texts."""
    try:
        yield
    except ApiError as error:
        code = error.status.code or 0
        raise KubeError(action, code, error.status.message or "no message", refused=code in _REFUSALS) from None
    except httpx2.HTTPStatusError as error:
        # an answer that is no Status object: from a group that is not installed, or from a proxy before the API server
        code = error.response.status_code
        message = f"the API server, or what stands before it, answered HTTP {code}"
        raise KubeError(action, code, message) from None
    except httpx2.HTTPError as error:
        raise KubeError(action, 0, f"the API server cannot be reached ({type(error).__name__})") from None


def _identity(namespace: str, name: str) -> Manifest:
    return {
        "apiVersion": "memory-index.dev/v1alpha1",
        "kind": "MemoryIndex",
        "metadata": {"name": name, "namespace": namespace},
    }
