"""From objects of the API to facts. Pure, and tolerant: a field that is not there yet means that it is not known."""

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import unquote, urlsplit

from memory_operator.api.conditions import parse_timestamp
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest
from memory_operator.reconcile.facts import (
    ClusterFacts,
    Credentials,
    DeploymentFacts,
    JobFacts,
    JobState,
    PodFacts,
    Problem,
)
from memory_operator.resources.cnpg import DatabaseObject
from memory_operator.resources.common import ANNOTATION_SEQUENCE, LABEL_COMPONENT, LABEL_CONFIG

HEALTHY_PHASE = "Cluster in healthy state"
_IMAGE_REASONS = {"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"}
_CONFIG_REASONS = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
_PULL_CAUSES = {
    "it is not there": ("not found", "manifest unknown", "does not exist"),
    "access is denied": ("unauthorized", "forbidden", "denied"),
    "the registry cannot be reached": ("connection refused", "no such host", "timeout", "dial tcp", "unreachable"),
}
_MESSAGE_LIMIT = 600
_MANY_RESTARTS = 3
_SHORT_LIFE = timedelta(seconds=60)


def secret_value(
    secret: Manifest | None, location: str, key: str, *, holds: str = "the connection URI", named_by: str = ""
) -> str | Problem:
    """The text of a Secret's key; `named_by` is the field of spec that names it, where that is not the database's."""
    if secret is None:
        message = f"Secret {location} does not exist; its key {key} should hold {holds}."
        return Problem(Reason.SECRET_MISSING, message, f"Create the Secret, or correct {named_by}." if named_by else "")
    encoded = (secret.get("data") or {}).get(key)
    if not encoded:
        keys = ", ".join(sorted(secret.get("data") or {})) or "none"
        message = f"Secret {location} has no key {key}; its keys are: {keys}."
        return Problem(
            Reason.SECRET_KEY_MISSING, message, f"Add the key to the Secret, or correct {named_by}." if named_by else ""
        )
    try:
        return base64.b64decode(encoded, validate=True).decode().strip()
    except (binascii.Error, UnicodeDecodeError):
        return Problem(Reason.SECRET_INVALID, f"Key {key} of Secret {location} is not text.")


def credentials(dsn: str, location: str, key: str) -> Credentials | Problem:
    """What may be known of a connection URI."""
    wrong = Problem(
        Reason.SECRET_INVALID,
        f"Key {key} of Secret {location} is not a connection URI with user, host and database.",
    )
    try:
        parts = urlsplit(dsn)
        host = parts.hostname
    except ValueError:
        return wrong
    database = unquote(parts.path.lstrip("/"))
    if parts.scheme.partition("+")[0] not in {"postgres", "postgresql"} or not (parts.username and host and database):
        return wrong
    return Credentials(user=unquote(parts.username), database=database)


def cluster_facts(cluster: Manifest) -> ClusterFacts:
    """A CloudNativePG Cluster."""
    meta, status = cluster["metadata"], cluster.get("status") or {}
    annotations = meta.get("annotations") or {}
    phase = status.get("phase") or ""
    switching = status.get("currentPrimary") != status.get("targetPrimary")
    return ClusterFacts(
        namespace=meta["namespace"],
        name=meta["name"],
        phase=phase,
        healthy=phase == HEALTHY_PHASE and not switching,
        hibernated=annotations.get("cnpg.io/hibernation") == "on",
        reconciliation_disabled=annotations.get("cnpg.io/reconciliationLoop") == "disabled",
    )


def database_object(item: Manifest) -> DatabaseObject:
    """A CloudNativePG Database."""
    meta, spec, status = item["metadata"], item.get("spec") or {}, item.get("status") or {}
    details = [entry.get("message") for entry in status.get("extensions") or () if entry.get("message")]
    return DatabaseObject(
        namespace=meta["namespace"],
        name=meta["name"],
        owner=spec.get("owner", ""),
        labels=meta.get("labels") or {},
        extensions=tuple(spec.get("extensions") or ()),
        generation=meta.get("generation", 0),
        observed_generation=status.get("observedGeneration"),
        applied=status.get("applied"),
        message=_short("; ".join([status.get("message") or "", *details]).strip("; ")),
        deleting="deletionTimestamp" in meta,
    )


def deployment_facts(deployment: Manifest) -> DeploymentFacts:
    """Replicas of a Deployment."""
    spec, status = deployment.get("spec") or {}, deployment.get("status") or {}
    replicas = spec.get("replicas", 1)
    current = status.get("observedGeneration") == deployment["metadata"].get("generation") and (
        status.get("updatedReplicas", 0) == replicas
    )
    return DeploymentFacts(
        replicas=replicas,
        ready=status.get("readyReplicas", 0),
        current=current,
        failure=_short(_condition(status, "ReplicaFailure").get("message", "")),
    )


def job_facts(job: Manifest, pods: Iterable[Manifest]) -> JobFacts:
    """A Job, with what its last failed pod said."""
    meta, status = job["metadata"], job.get("status") or {}
    state, finished_at = JobState.ACTIVE, None
    for kind, reached in (("Complete", JobState.COMPLETE), ("Failed", JobState.FAILED)):
        condition = _condition(status, kind)
        if condition:
            state, finished_at = reached, parse_timestamp(condition["lastTransitionTime"])
    annotations, labels = meta.get("annotations") or {}, meta.get("labels") or {}
    sequence = annotations.get(ANNOTATION_SEQUENCE, "0")
    mine = [pod for pod in pods if (pod["metadata"].get("labels") or {}).get("job-name") == meta["name"]]
    return JobFacts(
        name=meta["name"],
        component=labels.get(LABEL_COMPONENT, ""),
        config=labels.get(LABEL_CONFIG, ""),
        sequence=int(sequence) if sequence.isdigit() else 0,
        state=state,
        finished_at=finished_at,
        failure=_job_failure(status, mine) if state is JobState.FAILED else None,
        deleting="deletionTimestamp" in meta,
    )


def pod_facts(pod: Manifest) -> PodFacts:
    """A pod, with what keeps it from running."""
    meta, status = pod["metadata"], pod.get("status") or {}
    return PodFacts(
        name=meta["name"],
        component=(meta.get("labels") or {}).get(LABEL_COMPONENT, ""),
        ip=status.get("podIP"),
        ended=status.get("phase") in {"Succeeded", "Failed"},
        deleting="deletionTimestamp" in meta,
        problem=_pod_problem(f"Pod {meta['namespace']}/{meta['name']}", status),
    )


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """The condition of this type, if it is true; else nothing."""
    found = (
        item for item in status.get("conditions") or () if item.get("type") == kind and item.get("status") == "True"
    )
    return next(found, {})


def _pod_problem(object_name: str, status: Mapping[str, Any]) -> Problem | None:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return Problem(
                Reason.UNSCHEDULABLE, f"{object_name} cannot be scheduled: {_short(condition.get('message', ''))}"
            )
    for init, statuses in ((True, "initContainerStatuses"), (False, "containerStatuses")):
        for container in status.get(statuses) or ():
            problem = _container_problem(object_name, container, init=init)
            if problem:
                return problem
    return None


def _container_problem(object_name: str, container: Mapping[str, Any], *, init: bool) -> Problem | None:
    waiting = (container.get("state") or {}).get("waiting") or {}
    why, image = waiting.get("reason", ""), container.get("image", "")
    if why in _IMAGE_REASONS:
        return Problem(Reason.IMAGE_PULL_FAILED, f"{object_name} cannot pull image {image}{_pull_cause(waiting)}.")
    if why in _CONFIG_REASONS:
        return Problem(Reason.POD_REJECTED, f"{object_name} cannot start: {_short(waiting.get('message') or why)}")
    ended = (container.get("lastState") or {}).get("terminated") or {}
    if container.get("ready") or not (why == "CrashLoopBackOff" or _keeps_ending(container, ended)):
        return None
    said = termination(ended)
    status = ended.get("exitCode", "unknown")
    what = said.message if said else f"container {container.get('name')} ends with status {status}."
    fallback = Reason.MODEL_NOT_VERIFIED if init else Reason.CRASH_LOOP
    reason = said.reason if said and said.reason is not Reason.JOB_FAILED else fallback
    return Problem(reason, f"{object_name} keeps failing: {what}", said.remedy if said else "")


def _pull_cause(waiting: Mapping[str, Any]) -> str:
    """The kubelet's text alternates between two wordings of one failure; its cause does not."""
    text = (waiting.get("message") or "").lower()
    return next((f": {cause}" for cause, signs in _PULL_CAUSES.items() if any(sign in text for sign in signs)), "")


def _keeps_ending(container: Mapping[str, Any], ended: Mapping[str, Any]) -> bool:
    """Between two back-offs a failing container runs for a moment; that it did so often tells it from a start."""
    if container.get("restartCount", 0) < _MANY_RESTARTS or not ended.get("exitCode"):
        return False
    started, finished = ended.get("startedAt"), ended.get("finishedAt")
    if not (started and finished):
        return False
    return parse_timestamp(finished) - parse_timestamp(started) < _SHORT_LIFE


def termination(ended: Mapping[str, Any]) -> Problem | None:
    """What one of our processes wrote when it gave up."""
    try:
        said = json.loads(ended.get("message") or "")
        reason, message = str(said["reason"]), str(said["message"])
    except (ValueError, KeyError, TypeError):
        return None
    known = Reason.from_code(reason, Reason.JOB_FAILED)
    prefix = "" if known.code == reason else f"{reason}: "
    return Problem(known, _short(f"{prefix}{message}"), str(said.get("remedy") or ""))


def _job_failure(status: Mapping[str, Any], pods: list[Manifest]) -> Problem:
    ends = [
        container["state"]["terminated"]
        for pod in pods
        for container in (pod.get("status") or {}).get("containerStatuses") or ()
        if (container.get("state") or {}).get("terminated", {}).get("exitCode")
    ]
    ends.sort(key=lambda end: end.get("finishedAt") or "")
    said = next((problem for problem in map(termination, reversed(ends)) if problem), None)
    if said:
        return said
    if ends:
        return Problem(Reason.JOB_FAILED, f"its last pod ended with status {ends[-1]['exitCode']}.")
    return Problem(Reason.JOB_FAILED, _short(_condition(status, "Failed").get("message") or "no pod of it is left."))


def _short(text: str) -> str:
    return text if len(text) <= _MESSAGE_LIMIT else f"{text[:_MESSAGE_LIMIT]}..."
