"""What an author has chosen for pods that takes the permission of the operator's chart.

Every pod template of the operator records these choices in an annotation. So it is known of existing pods what was
chosen for them, although the specification may say something else by now, and although admission adds labels,
annotations, variables and containers of its own, which need no permission of the operator.
"""

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from memory_operator.api.embedder import COMPONENT
from memory_operator.api.spec import Manifest, MemoryIndex
from memory_operator.resources.common import ANNOTATION_CHOICES

_TEMPLATE = "spec.embedder.podTemplate"
EMBEDDER_IMAGE, _MODEL_IMAGE = "spec.embedder.image", "spec.embedding.source.image.reference"
_PRIORITY, _RUNTIME = "spec.embedder.priorityClassName", "spec.embedder.runtimeClassName"
_POD_ANNOTATION = "A key of spec.embedder.podAnnotations"
# By field, the list of the operator's chart that permits its value.
_LISTS = {
    EMBEDDER_IMAGE: "imagePrefixes",
    _MODEL_IMAGE: "imagePrefixes",
    _PRIORITY: "priorityClasses",
    _RUNTIME: "runtimeClasses",
    _POD_ANNOTATION: "podAnnotationPrefixes",
    f"{_TEMPLATE}.priorityClassName": "priorityClasses",
    f"A key of {_TEMPLATE}.annotations": "podAnnotationPrefixes",
    f"A key of {_TEMPLATE}.labels": "podLabelPrefixes",
    f"A name in {_TEMPLATE}.env": "environmentVariables",
}
# The fields of some pods; the others are those of every pod.
_OF_EMBEDDERS = frozenset({EMBEDDER_IMAGE, _MODEL_IMAGE, _PRIORITY, _RUNTIME, _POD_ANNOTATION})
_OF_SOME = {
    COMPONENT: _OF_EMBEDDERS,
    f"{COMPONENT}-next": _OF_EMBEDDERS,
    "fetch": frozenset({EMBEDDER_IMAGE, _PRIORITY}),
}


class Choice(NamedTuple):
    """A field of the specification and the value, or one of the names, that its author has chosen for it."""

    field: str
    value: str

    @property
    def permitted_by(self) -> str:
        """The list of the operator's chart that permits the value."""
        return _LISTS[self.field]


def choices_of(index: MemoryIndex) -> tuple[Choice, ...]:
    """Return all that the author of a MemoryIndex has chosen for its pods."""
    embedder, source, template = index.spec.embedder, index.spec.embedding.source, index.spec.embedder.pod_template
    given: dict[str, Iterable[str | None]] = {
        EMBEDDER_IMAGE: [embedder.image],
        _MODEL_IMAGE: [source.image.reference if source and source.image else None],
        _PRIORITY: [embedder.priority_class_name],
        _RUNTIME: [embedder.runtime_class_name],
        _POD_ANNOTATION: sorted(embedder.pod_annotations),
        f"{_TEMPLATE}.priorityClassName": [template.priority_class_name],
        f"A key of {_TEMPLATE}.annotations": sorted(template.annotations),
        f"A key of {_TEMPLATE}.labels": sorted(template.labels),
        f"A name in {_TEMPLATE}.env": sorted(str(variable.get("name")) for variable in template.env),
    }
    return tuple(Choice(field, value) for field, values in given.items() for value in values if value)


def record_of_choices(index: MemoryIndex, component: str) -> dict[str, str]:
    """Return the annotation of a component's pods that records what was chosen for them; none if nothing was."""
    kept = [one for one in choices_of(index) if one.field not in _OF_EMBEDDERS - _OF_SOME.get(component, frozenset())]
    return {ANNOTATION_CHOICES: json.dumps(kept, separators=(",", ":"))} if kept else {}


def recorded_choices(pod: Manifest) -> tuple[Choice, ...]:
    """Return what a pod, or a pod template, records as chosen for it; nothing of a record that is no such record."""
    annotations: Mapping[str, str] = (pod.get("metadata") or {}).get("annotations") or {}
    try:
        found = json.loads(annotations.get(ANNOTATION_CHOICES) or "[]")
    except (ValueError, RecursionError):
        return ()
    pairs = [one for one in found if isinstance(one, list) and len(one) == 2] if isinstance(found, list) else []
    return tuple(Choice(field, str(value)) for field, value in pairs if isinstance(field, str) and field in _LISTS)
