"""Compare a live object with the desired object, without a request to the Kubernetes API server.

A live object differs if its fingerprint annotation differs from that of the desired object. It also differs if a
desired field has another value. Fields that the operator does not set are ignored, such as defaults, injected sidecars
and the status. A NetworkPolicy's specification and a Service's selector must be equal as a whole, because an added rule
or label changes who may call whom. Quantities are compared as numbers, because the API server rewrites `1000m` as `1`.

A difference need not be somebody's edit: admission may have changed what the operator sent (Kyverno, GKE Autopilot, a
MutatingAdmissionPolicy), and it would do so at every further write. Therefore a value is no drift if the API server
stored it in place of the very value that is desired. What the API server stored is known from its answer to a write,
or from its answer to the same write as a dry run (`memory_operator.controller.writes`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from memory_operator.api.spec import Manifest
from memory_operator.resources.common import ANNOTATION_FINGERPRINT
from memory_operator.resources.quantities import same_quantity

Path = tuple[str, ...]
_FINGERPRINT = ("metadata", "annotations", ANNOTATION_FINGERPRINT)


@dataclass(frozen=True)
class Difference:
    """The two values of a field in which an object differs from the desired object; None for a missing field."""

    desired: object
    found: object


@dataclass(frozen=True)
class Admission:
    """How the API server changed what the operator last sent for the object with this uid, by the path of the field."""

    uid: str
    component: str = ""
    changes: Mapping[Path, Difference] = field(default_factory=dict)


def drifted(desired: Manifest, live: Manifest | None, admission: Admission | None = None) -> bool:
    """Return whether the desired object must be applied, because the live object is missing or differs."""
    if live is None:
        return True
    changes = admission.changes if admission and admission.uid == live["metadata"].get("uid") else {}
    return any(not _explained(found, changes.get(path)) for path, found in _differences(desired, live))


def differences(desired: Manifest, found: Manifest) -> dict[Path, Difference]:
    """Return the fields in which an object differs from the desired object, by their paths."""
    return dict(_differences(desired, found))


def still_changed(sent: Manifest, changes: Mapping[Path, Difference]) -> dict[Path, Difference]:
    """Return those of the changes by admission whose result is what is sent now."""
    return {path: change for path, change in changes.items() if _same(_at(sent, path), change.found)}


def is_doubtful(desired: Manifest, live: Manifest | None) -> bool:
    """Return whether only the API server can tell if a difference is drift or the effect of admission.

    That is so unless the live object's fingerprint says that something else is desired than what was sent for it.
    """
    if live is None or _at(live, _FINGERPRINT) not in {None, _at(desired, _FINGERPRINT)}:
        return False
    return drifted(desired, live)


def name_of(path: Path) -> str:
    """Return a field's name for people, such as `spec.template.spec.containers[embedder].image`."""
    return ".".join(path).replace(".[", "[")


def _explained(difference: Difference, change: Difference | None) -> bool:
    if change is None or not _same(difference.desired, change.desired):
        return False
    return _same(difference.found, change.found)


def _differences(desired: Manifest, live: Manifest) -> Iterator[tuple[Path, Difference]]:
    exact = _exact(desired)
    for path in exact:
        wanted, found = _at(desired, path) or {}, _at(live, path) or {}
        if _without_empty(wanted) != _without_empty(found):
            yield path, Difference(wanted, found)
    wanted, found = _at(desired, _FINGERPRINT), _at(live, _FINGERPRINT)
    if wanted != found:
        yield _FINGERPRINT, Difference(wanted, found)
    for path, difference in _below((), desired, live):
        if path != _FINGERPRINT and not any(path[: len(part)] == part for part in exact):
            yield path, difference


def _exact(desired: Manifest) -> tuple[Path, ...]:
    """Return the paths of those parts of an object that must be equal as a whole."""
    return {"NetworkPolicy": (("spec",),), "Service": (("spec", "selector"),)}.get(desired["kind"], ())


def _at(manifest: Manifest, path: Path) -> Any:  # noqa: ANN401 - any value of a manifest
    part: Any = manifest
    for name in path:
        if isinstance(part, list):
            part = next((item for item in part if isinstance(item, dict) and f"[{_key(item)}]" == name), None)
        else:
            part = (part or {}).get(name)
    return part


def _without_empty(part: Manifest) -> Manifest:
    """Return the fields without None and empty lists, which Kubernetes drops.

    Empty maps are kept, because an empty map can have a meaning.
    """
    return {name: value for name, value in part.items() if value not in (None, [])}


def _below(path: Path, desired: object, live: object) -> Iterator[tuple[Path, Difference]]:
    """Yield the fields at and below `path` in which the live value does not contain the desired value."""
    if desired in ({}, []):
        if live not in (None, {}, []):  # the API server drops many empty values
            yield path, Difference(desired, live)
    elif isinstance(desired, dict) and isinstance(live, dict):
        for name, value in desired.items():
            yield from _below((*path, name), value, live.get(name))
    elif isinstance(desired, list) and isinstance(live, list):
        yield from _below_list(path, desired, live)
    elif not _same(desired, live):
        yield path, Difference(desired, live)


def _below_list(path: Path, desired: list[Any], live: list[Any]) -> Iterator[tuple[Path, Difference]]:
    """Yield the items of a list in which the live list does not contain the desired list.

    Objects with names are compared by name, mounts by their place, and other objects in any order. Lists of plain
    values (a command) must be equal.
    """
    if all(isinstance(item, dict) and _key(item) for item in desired):
        found = {_key(item): item for item in live if isinstance(item, dict)}
        for item in desired:
            yield from _below((*path, f"[{_key(item)}]"), item, found.get(_key(item)))
        return
    if not all(isinstance(item, dict) for item in desired):
        if live != desired:
            yield path, Difference(desired, live)
        return
    if not all(any(next(_below(path, item, one), None) is None for one in live) for item in desired):
        yield path, Difference(desired, live)


def _key(item: Manifest) -> str:
    """Return what tells an item of a list from the others: its mount path or its name; empty if it has neither."""
    return str(item.get("mountPath") or item.get("name") or "")


def _same(left: object, right: object) -> bool:
    return left == right or same_quantity(left, right)
