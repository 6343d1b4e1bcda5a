"""Decide whether a MemoryIndex may use the images, classes, pod fields and hosts that its author chose.

Some choices have effects beyond the MemoryIndex itself: an image, a runtime class, a priority class, an annotation or
label that another controller acts on, an environment variable that leads texts through a proxy, and the host that all
texts are sent to. Whoever installs the operator lists what authors may choose, and everything else is refused. Hosts in
the object's own namespace need no permission. The operator's own images need one where an author names them: an image
that needed none would need it as soon as an upgrade has replaced it, and the embedder that runs it would be stopped.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from urllib.parse import urlsplit

from memory_operator.api.conditions import Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import MemoryIndex
from memory_operator.reconcile.authorization.addresses import CLUSTER_DOMAIN, is_listed
from memory_operator.resources.choices import EMBEDDER_IMAGE, Choice, choices_of
from memory_recall.embedding.address_policy import is_beyond_cluster, may_receive_texts
from memory_recall.embedding.apis import EmbedderApi, EmbedderOptions

_EGRESS_REMEDY = "Use an embedder in the cluster, or set spec.embedding.queryEgress to Allowed."


@dataclass(frozen=True)
class Permitted:
    """What authors of MemoryIndex objects may choose; a host with a leading dot permits every name below it."""

    image_prefixes: tuple[str, ...] = ()
    priority_classes: tuple[str, ...] = ()
    runtime_classes: tuple[str, ...] = ()
    pod_annotation_prefixes: tuple[str, ...] = ()
    pod_label_prefixes: tuple[str, ...] = ()
    environment_variables: tuple[str, ...] = ()
    external_hosts: tuple[str, ...] = ()
    database_hosts: tuple[str, ...] = ()

    def __str__(self) -> str:
        return json.dumps({name: value for name, value in asdict(self).items() if value})


def with_consent(permitted: Permitted, hosts: Iterable[str]) -> Permitted:
    """Return what an author may choose where these hosts are embedders whose owners consent to their use."""
    return replace(permitted, external_hosts=(*permitted.external_hosts, *sorted(hosts)))


def check_permissions(index: MemoryIndex, permitted: Permitted) -> Verdict | None:
    """Return a failing verdict about the first choice of the author that the chart does not permit, or None."""
    refused = first_refused(choices_of(index), permitted)
    return check_external(index, permitted) or (
        _refusal(refused.field, refused.value, how_to_permit(refused)) if refused else None
    )


def first_refused(choices: Iterable[Choice], permitted: Permitted) -> Choice | None:
    """Return the first of these choices that is not permitted; None if all are."""
    return next((choice for choice in choices if not _is_permitted(choice, permitted)), None)


def how_to_permit(choice: Choice) -> str:
    """Return what to do about a choice that the operator's chart does not permit."""
    instead = "Leave it out for the chart's own image" if choice.field == EMBEDDER_IMAGE else "Choose another"
    return _remedy(choice.permitted_by, instead)


def permitted_part(index: MemoryIndex, permitted: Permitted) -> MemoryIndex:
    """Return the MemoryIndex without those choices that are not permitted.

    Every manifest is built from the result, also while an object with such a choice is being deleted. Therefore no
    choice that is not permitted enters an object in any way.
    """
    if check_permissions(index, permitted) is None:
        return index
    embedder, source = index.spec.embedder, index.spec.embedding.source
    template = embedder.pod_template
    kept = {
        "labels": _named(template.labels, permitted.pod_label_prefixes),
        "annotations": _named(template.annotations, permitted.pod_annotation_prefixes),
        "priority_class_name": _listed(template.priority_class_name, permitted.priority_classes),
        "env": tuple(one for one in template.env if one.get("name") in permitted.environment_variables),
    }
    image = source.image.reference if source and source.image else None
    changes = {
        "image": embedder.image if _is_image_permitted(embedder.image, permitted) else None,
        "priority_class_name": _listed(embedder.priority_class_name, permitted.priority_classes),
        "runtime_class_name": _listed(embedder.runtime_class_name, permitted.runtime_classes),
        "pod_annotations": _named(embedder.pod_annotations, permitted.pod_annotation_prefixes),
        "pod_template": template.model_copy(update=kept),
        "external": None if check_external(index, permitted) else embedder.external,
    }
    embedding = index.spec.embedding
    if not _is_image_permitted(image, permitted):
        embedding = embedding.model_copy(update={"source": None})
    spec = {"embedder": embedder.model_copy(update=changes), "embedding": embedding}
    return index.model_copy(update={"spec": index.spec.model_copy(update=spec)})


def check_external(index: MemoryIndex, permitted: Permitted) -> Verdict | None:
    """Return a failing verdict if the external embedder must not be called; None if it may be, or if there is none.

    Its host must be permitted. Whatever serves beyond the cluster needs the consent of the object to send texts there,
    and is sent neither texts nor an API key unencrypted. The operator's own request is sent while it observes, before
    any other decision. Therefore this is also checked right before that request.
    """
    external = index.spec.embedder.external
    if external is None:
        return None
    if external.api_key and not _keeps_a_key_secret(external.url):
        message = "spec.embedder.external.apiKey would be sent unencrypted to a host outside the cluster."
        return Verdict.no(Reason.INVALID_SPEC, message, "Use an https:// URL in spec.embedder.external.url.")
    if not _is_host_permitted(index, external.host, permitted):
        return _refusal("The host of spec.embedder.external.url", external.host, _remedy("externalHosts"))
    leaves = EmbedderOptions(EmbedderApi(external.api)).leaves_cluster(external.url)
    if leaves and index.spec.embedding.query_egress != "Allowed":
        message = f"Texts would leave the cluster for {external.host}, which spec.embedding.queryEgress does not allow."
        return Verdict.no(Reason.INVALID_SPEC, message, _EGRESS_REMEDY)
    if is_beyond_cluster(external.url) and not may_receive_texts(external.url, egress=True):
        message = f"Texts would be sent unencrypted to {external.host}, which is beyond the cluster."
        return Verdict.no(Reason.INVALID_SPEC, message, "Use an https:// URL in spec.embedder.external.url.")
    return None


def _is_host_permitted(index: MemoryIndex, host: str, permitted: Permitted) -> bool:
    """Return whether texts may be sent to this host: it is in the object's namespace, or `permitted` lists it."""
    own = tuple(f".{index.namespace}.{suffix}" for suffix in ("svc", f"svc.{CLUSTER_DOMAIN}"))
    return is_listed(host, permitted.external_hosts) or host.endswith(own)


def _refusal(field: str, value: str, remedy: str) -> Verdict:
    return Verdict.no(Reason.NOT_PERMITTED, f"{field} is {value}, which the operator does not permit.", remedy)


def _remedy(chart_value: str, instead: str = "Choose another") -> str:
    return f"{instead}, or have it added to permitted.{chart_value} of the operator's chart."


def _is_permitted(choice: Choice, permitted: Permitted) -> bool:
    match choice.permitted_by:
        case "imagePrefixes":
            return _has_prefix(choice.value, permitted.image_prefixes)
        case "priorityClasses":
            return choice.value in permitted.priority_classes
        case "runtimeClasses":
            return choice.value in permitted.runtime_classes
        case "podAnnotationPrefixes":
            return choice.value.startswith(permitted.pod_annotation_prefixes)
        case "podLabelPrefixes":
            return choice.value.startswith(permitted.pod_label_prefixes)
        case _:
            return choice.value in permitted.environment_variables


def _is_image_permitted(image: str | None, permitted: Permitted) -> bool:
    """Return whether the image is permitted, or none is named."""
    return not image or _has_prefix(image, permitted.image_prefixes)


def _named(given: dict[str, str], prefixes: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in given.items() if name.startswith(prefixes)}


def _listed(name: str | None, permitted: tuple[str, ...]) -> str | None:
    return name if name in permitted else None


def _has_prefix(image: str, prefixes: tuple[str, ...]) -> bool:
    """Return whether the image begins with one of the prefixes, which must not end within a part of the name.

    For example `host/team` is a prefix of `host/team/image`, but not of `host/teams/image`.
    """
    return any(
        image == prefix or image.startswith(tuple(f"{prefix.rstrip('/')}{end}" for end in _ends(prefix)))
        for prefix in prefixes
    )


def _ends(prefix: str) -> tuple[str, ...]:
    """Return the characters that may follow this prefix in the name of an image.

    A colon may not follow a bare registry host, because it would begin a port.
    """
    return ("/", ":", "@") if "/" in prefix.rstrip("/") else ("/",)


def _keeps_a_key_secret(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.hostname or "").endswith((".svc", ".svc.cluster.local"))
