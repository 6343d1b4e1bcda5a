"""Read and write Kubernetes objects by get, list, server-side apply and delete.

Objects are plain dictionaries, because typed models would drop the fields of newer API versions. All writes of the
operator go through this module under one field manager. Server-side apply never overwrites an existing object that does
not belong to the operator, and each write names the uid, or the version, of the object that was read. The errors of
kubernetes.aio, whose dynamic client has no type annotations, are converted to KubeError here.
"""

import json
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import aiohttp
from kubernetes.aio.client import ApiClient
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.dynamic import DynamicClient, Resource

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import FINALIZER, Manifest
from memory_operator.resources.common import MANAGER
from memory_operator.resources.ownership import is_former, is_ours

KINDS = {
    "MemoryIndex": ("memory-index.dev", "v1alpha1", "memoryindexes"),
    "Namespace": ("", "v1", "namespaces"),
    "Secret": ("", "v1", "secrets"),
    "ConfigMap": ("", "v1", "configmaps"),
    "Pod": ("", "v1", "pods"),
    "Service": ("", "v1", "services"),
    "PersistentVolumeClaim": ("", "v1", "persistentvolumeclaims"),
    "Deployment": ("apps", "v1", "deployments"),
    "ReplicaSet": ("apps", "v1", "replicasets"),
    "Job": ("batch", "v1", "jobs"),
    "PodDisruptionBudget": ("policy", "v1", "poddisruptionbudgets"),
    "NetworkPolicy": ("networking.k8s.io", "v1", "networkpolicies"),
    "Event": ("", "v1", "events"),
    "Cluster": ("postgresql.cnpg.io", "v1", "clusters"),
    "Database": ("postgresql.cnpg.io", "v1", "databases"),
    "Lease": ("coordination.k8s.io", "v1", "leases"),
}  # each with its group, version and plural
_RESOURCES = {
    kind: Resource(
        prefix="apis" if group else "api", group=group, api_version=version, kind=kind, name=plural, namespaced=True
    )
    for kind, (group, version, plural) in KINDS.items()
}
EVERY_NAMESPACE = ""
_REFUSALS = {400, 403, 422}  # the request itself is unwelcome: permissions, quota, admission, validation
_PAGE = 20  # objects of an answer; one may have more than a megabyte
_METADATA_PAGE = 500  # the same of answers that have nothing but the metadata of objects
LISTED_BYTES = 64 * 2**20  # of the answers from which objects are read together
_LIMIT = aiohttp.ClientTimeout(total=30.0)
_APPLY = {"content_type": "application/apply-patch+yaml", "force_conflicts": True, "field_manager": MANAGER}
_OF_NO_OBJECT = "1"  # a resourceVersion that no object has: a write with it can only create
_METADATA = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
_DELETE_OPTIONS = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
_MERGE_PATCH = {"content_type": "application/merge-patch+json", "field_manager": MANAGER}
_JSON_PATCH = {"content_type": "application/json-patch+json", "field_manager": MANAGER}
_UNDECLARED = "strict decoding error: "  # stands after a copy of the whole object and before the unknown fields
_TEST_FAILED = "the server rejected our request due to an error in our request"  # a test of a JSON patch, among others
_OLDER_DEFINITION = "the definition is older than this operator: apply the chart's (helm show crds)"


class KubeError(Exception):
    """A request to the Kubernetes API server failed.

    `refused` is True if repeating the request cannot help. `code` is the HTTP status, or 0 if no answer came.
    """

    reason = Reason.WRITE_REFUSED

    def __init__(self, action: str, code: int, message: str, *, refused: bool = False) -> None:
        super().__init__(f"{action}: {message}")
        self.action = action
        self.code = code
        self.message = message
        self.refused = refused

    @property
    def text(self) -> str:
        """The message for a condition whose write the Kubernetes API server has refused."""
        return f"The API server refuses {self.action}: {self.message}"


class NameTakenError(KubeError):
    """An existing object with the needed name does not belong to the MemoryIndex.

    `refused` is False if the existing object will soon be deleted, so that a retry can succeed.
    """

    reason = Reason.NAME_TAKEN

    @property
    def text(self) -> str:
        """The message for a condition whose object needs a name that another object has."""
        return self.message


class NotFoundError(KubeError):
    """The object, or its kind, does not exist."""


class NamespaceFullError(KubeError):
    """The objects of a namespace take more of the operator's memory than those of one namespace may."""

    def __init__(self, action: str, namespace: str, limit: int) -> None:
        self.namespace = namespace
        super().__init__(action, 0, f"they take more than {limit >> 20} MiB; delete some of them")


class KindMissingError(KubeError):
    """The API server does not know this kind of object, because its CustomResourceDefinition is not installed."""


class Kube:
    """Reads and writes Kubernetes objects."""

    def __init__(
        self, client: ApiClient, on_write: Callable[[str, str], None], on_answer: Callable[[Manifest], None]
    ) -> None:
        self._client = DynamicClient(client)  # not awaited: that would only discover kinds, and all are listed above
        self._on_write = on_write  # is told kind and verb of each write
        self._on_answer = on_answer  # is given the object as it is after a write

    async def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """Return the object, or None if it does not exist."""
        try:
            return await self._request(f"reading {kind} {namespace}/{name}", "get", _path(kind, namespace, name))
        except NotFoundError:
            return None

    async def list(self, kind: str, namespace: str, labels: dict[str, str] | None = None) -> list[Manifest]:
        """Return the objects that carry the labels, in one namespace, or in all namespaces for EVERY_NAMESPACE.

        Each returned object has `kind` and `apiVersion`, which the API server omits from the items of a list.

        Raises:
            KindMissingError: the server does not know the kind.
            NamespaceFullError: the objects are too large to be held together.
        """
        found: list[Manifest] = []
        total = 0
        async for items, size in self.pages(kind, namespace, labels):
            total += size
            if total > LISTED_BYTES:
                raise NamespaceFullError(_listing(kind, namespace), namespace, LISTED_BYTES)
            found += items
        return found

    async def pages(
        self, kind: str, namespace: str, labels: dict[str, str] | None = None
    ) -> AsyncIterator[tuple[Collection[Manifest], int]]:
        """Yield the objects that `list` would return, however large they are together, by few at a time.

        Each part comes with the size in bytes of the answer that it is from.

        Raises:
            KindMissingError: the server does not know the kind.
        """
        head = {"apiVersion": _RESOURCES[kind].group_version, "kind": kind}
        async for items, size in self._pages(kind, namespace, labels, _PAGE):
            yield [{**head, **item} for item in items], size

    async def uids(self, kind: str, namespace: str, labels: dict[str, str] | None = None) -> frozenset[str]:
        """Return the uids of the objects that `list` would return; only their metadata is transferred."""
        pages = self._pages(kind, namespace, labels, _METADATA_PAGE, **_METADATA)
        return frozenset([item["metadata"]["uid"] async for items, _ in pages for item in items])

    async def apply(self, manifest: Manifest) -> Manifest:
        """Create or change an object of the operator by server-side apply, with precedence over other field managers.

        Return the object as the API server stores it, which admission may have changed.

        Raises:
            NameTakenError: an object of this name exists and does not belong to the same MemoryIndex.
        """
        kind, meta = manifest["kind"], manifest["metadata"]
        namespace, name = meta["namespace"], meta["name"]
        live = await self.get(kind, namespace, name)
        action = f"applying {kind} {namespace}/{name}"
        if live is not None and not is_ours(manifest, live):
            raise NameTakenError(action, 409, _not_ours(kind, namespace, name), refused=not is_former(manifest, live))
        self._on_write(kind, "apply")
        # The API server refuses the write if the object has been made, deleted or replaced since it was read.
        known = {"uid": live["metadata"]["uid"]} if live else {"resourceVersion": _OF_NO_OBJECT}
        body = {**manifest, "metadata": {**meta, **known}}
        stored = await self._request(action, "patch", _path(kind, namespace, name), body, **_APPLY)
        self._on_answer(stored)
        return stored

    async def dry_run(self, manifest: Manifest) -> Manifest:
        """Return the object as the API server would store it after `apply`; nothing is written."""
        kind, meta = manifest["kind"], manifest["metadata"]
        action = f"asking what becomes of {kind} {meta['namespace']}/{meta['name']}"
        path = _path(kind, meta["namespace"], meta["name"])
        return await self._request(action, "patch", path, manifest, **_APPLY, dry_run="All")

    async def patch(self, kind: str, namespace: str, name: str, uid: str, changes: Manifest) -> None:
        """Change some fields of the object with this uid by a merge patch; do nothing if none has its name.

        Raises:
            KubeError: the object of this name has another uid, among other reasons.
        """
        self._on_write(kind, "patch")
        body = {**changes, "metadata": {**changes.get("metadata", {}), "uid": uid}}
        action = f"changing {kind} {namespace}/{name}"
        with suppress(NotFoundError):
            self._on_answer(await self._request(action, "patch", _path(kind, namespace, name), body, **_MERGE_PATCH))

    async def replace(self, manifest: Manifest) -> None:
        """Replace an object; the write is not counted, because Leases are renewed all the time.

        Raises:
            KubeError: with code 409, if the object has changed since it was read.
        """
        kind, meta = manifest["kind"], manifest["metadata"]
        action = f"replacing {kind} {meta['namespace']}/{meta['name']}"
        await self._request(action, "put", _path(kind, meta["namespace"], meta["name"]), manifest)

    async def create(self, manifest: Manifest) -> None:
        """Create an object; do nothing if an object of this name exists."""
        kind, meta = manifest["kind"], manifest["metadata"]
        self._on_write(kind, "create")
        try:
            action = f"creating {kind} {meta['namespace']}/{meta['name']}"
            await self._request(action, "post", _path(kind, meta["namespace"]), manifest)
        except KubeError as error:
            if error.code != 409:
                raise

    async def replace_status(self, manifest: Manifest, status: Manifest) -> None:
        """Replace the status of this MemoryIndex as a whole.

        The request is a JSON patch that tests the uid, because for every other write of a custom resource's status the
        API server takes the metadata of the object that it has, and ignores what the write says of it.

        Raises:
            KubeError: with code 409, if the object of this name is another one by now; or the definition lacks a field.
        """
        meta = manifest["metadata"]
        action = f"writing the status of MemoryIndex {meta['namespace']}/{meta['name']}"
        path = f"{_path('MemoryIndex', meta['namespace'], meta['name'])}/status"
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": meta["uid"]},
            {"op": "add", "path": "/status", "value": status},
        ]
        self._on_write("MemoryIndex", "status")
        try:
            # The API server drops a field that the definition lacks, unless it is asked to refuse it.
            await self._patch_tested(action, path, patch, query_params=[("fieldValidation", "Strict")])
        except KubeError as error:
            _, undeclared, fields = error.message.rpartition(_UNDECLARED)
            if not undeclared:
                raise
            raise KubeError(action, error.code, f"{_OLDER_DEFINITION} ({fields})") from None

    async def set_finalizer(self, manifest: Manifest, *, present: bool) -> None:
        """Add the operator's finalizer to this MemoryIndex, or remove it; other finalizers stay.

        The request is a JSON patch, because server-side apply cannot remove a finalizer that a restored backup or
        `kubectl create` has added.

        Raises:
            KubeError: the object has changed since it was read.
        """
        meta = manifest["metadata"]
        namespace, name = meta["namespace"], meta["name"]
        others = [other for other in meta.get("finalizers") or () if other != FINALIZER]
        patch = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": meta["resourceVersion"]},
            {"op": "add", "path": "/metadata/finalizers", "value": [*others, *([FINALIZER] if present else [])]},
        ]
        action = f"writing the finalizers of MemoryIndex {namespace}/{name}"
        self._on_write("MemoryIndex", "finalizer")
        with suppress(NotFoundError):
            await self._patch_tested(action, _path("MemoryIndex", namespace, name), patch)

    async def is_terminating(self, namespace: str) -> bool:
        """Return whether the namespace is being deleted or is gone; False if the operator may not read it."""
        try:
            found = await self._request(f"reading Namespace {namespace}", "get", _path("Namespace", None, namespace))
        except NotFoundError:
            return True
        except KubeError as error:
            if error.code != 403:
                raise
            return False
        return "deletionTimestamp" in found["metadata"]

    async def namespace_uid(self, namespace: str) -> str:
        """Return the uid of a namespace."""
        found = await self._request(f"reading Namespace {namespace}", "get", _path("Namespace", None, namespace))
        return str(found["metadata"]["uid"])

    async def delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Delete the object with this uid, and its dependents in the background; do nothing if none has its name.

        Raises:
            NameTakenError: the object of this name has another uid, so it is not the one that was observed.
        """
        self._on_write(kind, "delete")
        action, path = f"deleting {kind} {namespace}/{name}", _path(kind, namespace, name)
        try:
            await self._request(action, "delete", path, {**_DELETE_OPTIONS, "preconditions": {"uid": uid}})
        except NotFoundError:
            return
        except KubeError as error:
            live = await self.get(kind, namespace, name) if error.code == 409 else None
            if live is None or live["metadata"]["uid"] == uid:
                raise
            raise NameTakenError(action, 409, _not_ours(kind, namespace, name), refused=True) from None

    async def _pages(
        self, kind: str, namespace: str, labels: dict[str, str] | None, most: int, **headers: str
    ) -> AsyncIterator[tuple[Collection[Manifest], int]]:
        """Yield the objects of a kind page by page, `most` on each, with the size of each answer in bytes."""
        action, position = _listing(kind, namespace), None
        selector = ",".join(f"{name}={value}" for name, value in (labels or {}).items()) or None
        while True:
            options = {"label_selector": selector, "header_params": headers, "limit": most, "_continue": position}
            try:
                found, size = await self._answer(action, "get", _path(kind, namespace), **options)
            except NotFoundError as error:
                raise KindMissingError(action, error.code, error.message) from None
            yield found.get("items") or (), size
            position = (found.get("metadata") or {}).get("continue")
            if not position:
                return

    async def _patch_tested(self, action: str, path: str, patch: Sequence[Manifest], **options: Any) -> None:  # noqa: ANN401 - the options of an untyped library
        """Send a JSON patch that tests what was read before it changes something.

        Raises:
            KubeError: with code 409, if a test of the patch fails.
        """
        try:
            self._on_answer(await self._request(action, "patch", path, patch, **_JSON_PATCH, **options))
        except KubeError as error:
            if error.code != 422 or _TEST_FAILED not in error.message:
                raise
            raise KubeError(action, 409, "the object has changed since it was read") from None

    async def _request(self, action: str, method: str, path: str, body: object = None, **options: Any) -> Manifest:  # noqa: ANN401 - the options of an untyped library
        """Send one request and return the object in the answer. An error names the request by `action`."""
        found, _ = await self._answer(action, method, path, body, **options)
        return found

    async def _answer(
        self,
        action: str,
        method: str,
        path: str,
        body: object = None,
        **options: Any,  # noqa: ANN401 - the options of an untyped library
    ) -> tuple[Manifest, int]:
        """Send one request and return the object in the answer, and the size of the answer in bytes."""
        with _converted_errors(action):
            answer = await self._client.request(
                method, path, body=body, serialize=False, _request_timeout=_LIMIT, **options
            )
            return dict(await answer.json()), len(await answer.read())


def _listing(kind: str, namespace: str) -> str:
    return f"listing {kind} in {namespace}"


def _not_ours(kind: str, namespace: str, name: str) -> str:
    return f"{kind} {namespace}/{name} exists and does not belong to this MemoryIndex."


def _path(kind: str, namespace: str | None, name: str | None = None) -> str:
    """Return the URL path of an object, or of all objects of a kind.

    Names with path syntax are rejected, because a name like `../../other/secrets/x` would lead to another namespace.

    Raises:
        NotFoundError: no object or namespace can have such a name.
    """
    for part in (namespace or "all", name or "all"):
        if part in {".", ".."} or not {"/", "%", "?", "#"}.isdisjoint(part):
            raise NotFoundError(f"reading {kind} {part}", 404, "no object can have this name")
    found: str = _RESOURCES[kind].path(name=name, namespace=namespace)
    return found


@contextmanager
def _converted_errors(action: str) -> Iterator[None]:
    """Convert errors of the client libraries to KubeError, without the network addresses in their messages."""
    try:
        yield
    except ApiException as error:
        code, message = error.status or 0, _status_message(error)
        if message is None:
            # an answer that is no Status object: from a group that is not installed, or from a proxy before the server
            missing = KindMissingError if code == 404 else KubeError
            text = f"the API server, or what stands before it, answered HTTP {code}"
            raise missing(action, code, text) from None
        kind = NotFoundError if code == 404 else KubeError
        raise kind(action, code, message, refused=code in _REFUSALS) from None
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise KubeError(action, 0, f"the API server cannot be reached ({type(error).__name__})") from None


def _status_message(error: ApiException) -> str | None:
    """Return the message of the Status object in the answer, or None if the answer is no Status object."""
    try:
        found = json.loads(error.body or "")
    except ValueError:
        return None
    if not isinstance(found, dict) or found.get("kind") != "Status":
        return None
    return str(found.get("message") or "no message")
