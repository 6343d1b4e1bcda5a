"""Parse Kubernetes objects into facts. A missing field is treated as not yet known."""

import base64
import binascii
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from memory_operator.api.conditions import parse_timestamp
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest, allowed_namespaces
from memory_operator.reconcile.facts import (
    ApplicationDatabase,
    ClusterFacts,
    Credentials,
    DeploymentFacts,
    JobFacts,
    JobState,
    PodFacts,
    Problem,
)
from memory_operator.resources.choices import recorded_choices
from memory_operator.resources.cnpg import DatabaseObject, owner_uids
from memory_operator.resources.common import (
    ANNOTATION_INDEX_UID,
    ANNOTATION_SEQUENCE,
    ANNOTATION_STOPPED,
    LABEL_COMPONENT,
    LABEL_CONFIG,
    OWN_CONTAINERS,
    own_container,
)
from memory_operator.resources.embedder import stopped_at
from memory_operator.resources.ownership import controller_uid
from memory_operator.resources.worker_pods import destinations, mounted_secrets
from memory_recall.errors import InvalidConfiguration
from memory_recall.postgres.connection_uri import parse as parse_connection_uri
from memory_recall.secret_file import first_key

HEALTHY_PHASE = "Cluster in healthy state"
_IMAGE_REASONS = {"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"}
_CONFIG_REASONS = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
_PULL_CAUSES = {
    "it is not there": ("not found", "manifest unknown", "does not exist"),
    "access is denied": ("unauthorized", "forbidden", "denied"),
    "the registry cannot be reached": ("connection refused", "no such host", "timeout", "dial tcp", "unreachable"),
}
_FETCH = "fetch"
_WITH_MODEL = {"embedder", "embedder-next", _FETCH}  # the components whose pods mount a model file
_WITH_BACKFILL_RESOURCES = {"backfill", "swap"}
_EMBEDDERS = {"embedder", "embedder-next"}
_NO_LIMITS: Mapping[str, str] = {}
_DATABASE_NAME = re.compile(r"[A-Za-z_][-A-Za-z0-9_]{0,62}")
_SEQUENCE = re.compile(r"[0-9]{1,9}")
_MESSAGE_LIMIT = 600
_MANY_RESTARTS = 3
_SHORT_LIFE = timedelta(seconds=60)


def secret_value(
    secret: Manifest | None, location: str, key: str, *, holds: str = "the connection URI", named_by: str = ""
) -> str | Problem:
    """Return the decoded text of one key of a Secret, or a problem if the text is missing or invalid.

    `location` is the Secret's namespace/name. `holds` says in messages what the key should contain. `named_by` is the
    field of the specification that names the Secret, which the remedy mentions; it is empty for the Secret of the
    connection URI.
    """
    if secret is None:
        message = f"Secret {location} does not exist; its key {key} should hold {holds}."
        return Problem(Reason.SECRET_MISSING, message, f"Create the Secret, or correct {named_by}." if named_by else "")
    encoded = (secret.get("data") or {}).get(key)
    if not encoded:
        message = f"Secret {location} has no key {key}, which should hold {holds}."
        return Problem(
            Reason.SECRET_KEY_MISSING, message, f"Add the key to the Secret, or correct {named_by}." if named_by else ""
        )
    try:
        return base64.b64decode(encoded, validate=True).decode().strip()
    except (binascii.Error, UnicodeDecodeError):
        return Problem(Reason.SECRET_INVALID, f"Key {key} of Secret {location} is not text.")


def api_key(secret: Manifest | None, location: str, key: str, *, named_by: str) -> str | Problem:
    """Return the API key that callers of an embedder send, or a problem. Parameters are those of `secret_value`."""
    text = secret_value(secret, location, key, holds="the API key", named_by=named_by)
    if isinstance(text, Problem):
        return text
    try:
        return first_key(text)
    except InvalidConfiguration as error:
        return Problem(Reason.SECRET_INVALID, f"Key {key} of Secret {location}: {error.message}", error.remedy)


def credentials(dsn: str, location: str, key: str) -> Credentials | Problem:
    """Return hosts, ports, database and role of a connection URI, or a problem if the URI cannot be used.

    A database name with unusual characters is refused: it may be part of a password that is not percent-encoded.
    """
    what = f"Key {key} of Secret {location}"
    try:
        found = parse_connection_uri(dsn)
    except InvalidConfiguration as error:
        return Problem(Reason.SECRET_INVALID, f"{what}: {error.message}", error.remedy)
    if not _DATABASE_NAME.fullmatch(found.database):
        message = f"{what} is a connection URI whose database has no plain name; a password may need percent-encoding."
        return Problem(Reason.SECRET_INVALID, message)
    if any(server.is_socket for server in found.servers):
        return Problem(Reason.SECRET_INVALID, f"{what} names a Unix socket, which no other pod can reach.")
    return Credentials(found.database, tuple(sorted({server.port for server in found.servers})), found.user)


def cluster_facts(cluster: Manifest) -> ClusterFacts:
    """Parse a CloudNativePG Cluster into facts."""
    meta, status = cluster["metadata"], cluster.get("status") or {}
    annotations = meta.get("annotations") or {}
    phase = status.get("phase") or ""
    switching = status.get("currentPrimary") != status.get("targetPrimary")
    return ClusterFacts(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta.get("uid", ""),
        system_id=status.get("systemID") or "",
        allowed_namespaces=allowed_namespaces(annotations),
        addresses=frozenset(
            one["ip"] for one in (status.get("instancesReportedState") or {}).values() if one.get("ip")
        ),
        application=_application_database(cluster.get("spec") or {}),
        phase=phase,
        phase_reason=_truncated(" ".join((status.get("phaseReason") or "").split())),
        healthy=phase == HEALTHY_PHASE and not switching,
        hibernated=annotations.get("cnpg.io/hibernation") == "on",
        replica=_is_replica(meta["name"], (cluster.get("spec") or {}).get("replica") or {}),
        reconciliation_disabled=annotations.get("cnpg.io/reconciliationLoop") == "disabled",
        ca_secret=_ca_secret(meta["name"], cluster.get("spec") or {}, status),
    )


def _ca_secret(name: str, spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    """Return the Secret with the servers' certificate authority, which CloudNativePG makes unless another is given."""
    given = (part.get("certificates") or {} for part in (status, spec))
    return next((str(one["serverCASecret"]) for one in given if one.get("serverCASecret")), f"{name}-ca")


def _application_database(spec: Mapping[str, Any]) -> ApplicationDatabase | None:
    """Return the database that the Cluster's bootstrap method created, or None if the method names no database."""
    for bootstrap in (spec.get("bootstrap") or {}).values():
        if bootstrap and bootstrap.get("database") and bootstrap.get("owner"):
            return ApplicationDatabase(bootstrap["database"], bootstrap["owner"])
    return None


def _is_replica(name: str, replica: Mapping[str, Any]) -> bool:
    """Return whether a Cluster is a replica of another Cluster."""
    if "enabled" in replica:
        return bool(replica["enabled"])
    return bool(replica.get("primary", name) != replica.get("self", name))


def database_object(item: Manifest) -> DatabaseObject:
    """Parse a CloudNativePG Database object."""
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
        message=_truncated("; ".join([status.get("message") or "", *details]).strip("; ")),
        deleting="deletionTimestamp" in meta,
        index_uid=(meta.get("annotations") or {}).get(ANNOTATION_INDEX_UID),
        owner_uids=owner_uids(item),
        uid=meta.get("uid", ""),
    )


def deployment_facts(deployment: Manifest) -> DeploymentFacts:
    """Parse the numbers of replicas, the failures and the image of a Deployment."""
    spec, status = deployment.get("spec") or {}, deployment.get("status") or {}
    observed = status.get("observedGeneration") == deployment["metadata"].get("generation")
    total = status.get("replicas", 0)
    updated = status.get("updatedReplicas", 0) if observed else 0  # an older status counts pods of an older template
    reasons = {item.get("reason") for item in status.get("conditions") or () if item.get("type") == "Progressing"}
    return DeploymentFacts(
        replicas=spec.get("replicas", 1),
        ready=status.get("readyReplicas", 0),
        current=observed and updated == total,
        failure=_truncated(_condition(status, "ReplicaFailure").get("message", "")),
        total=total,
        updated=updated,
        deadline_exceeded="ProgressDeadlineExceeded" in reasons,
        paused=bool(spec.get("paused")),
        image=own_container((spec.get("template") or {}).get("spec") or {}).get("image", ""),
        stopped_at=stopped_at(deployment),
    )


def job_facts(job: Manifest, pods: Iterable[Manifest]) -> JobFacts:
    """Parse a Job into facts. If the Job has failed, they include the problem that its last failed pod reported."""
    meta, status = job["metadata"], job.get("status") or {}
    state, finished_at = JobState.ACTIVE, None
    for kind, reached in (("Complete", JobState.COMPLETE), ("Failed", JobState.FAILED)):
        condition = _condition(status, kind)
        if condition:
            state, finished_at = reached, parse_timestamp(condition["lastTransitionTime"])
    annotations, labels = meta.get("annotations") or {}, meta.get("labels") or {}
    sequence = annotations.get(ANNOTATION_SEQUENCE, "0")
    suspended = bool((job.get("spec") or {}).get("suspend"))
    template = (job.get("spec") or {}).get("template") or {}
    own_pods = [pod for pod in pods if (pod["metadata"].get("labels") or {}).get("job-name") == meta["name"]]
    component = labels.get(LABEL_COMPONENT, "")
    return JobFacts(
        name=meta["name"],
        component=component,
        config=labels.get(LABEL_CONFIG, ""),
        sequence=int(sequence) if _SEQUENCE.fullmatch(sequence) else 0,
        state=state,
        finished_at=finished_at,
        failure=_job_failure(status, own_pods, component, _memory_limit(job)) if state is JobState.FAILED else None,
        deleting="deletionTimestamp" in meta,
        uid=meta.get("uid", ""),
        suspended=suspended,
        stopped=suspended and ANNOTATION_STOPPED in annotations,
        sends_to=destinations(template),
        secrets=mounted_secrets(template),
        choices=recorded_choices(template),
        failed_pods=status.get("failed") or 0,
        created_at=_created_at(meta),
    )


def memory_limits(workloads: Iterable[Manifest]) -> dict[str, str]:
    """Return the memory limits of the operator's containers in the pods of these Deployments and Jobs, by component."""
    return {(item["metadata"].get("labels") or {}).get(LABEL_COMPONENT, ""): _memory_limit(item) for item in workloads}


def _memory_limit(workload: Manifest) -> str:
    template = (workload.get("spec") or {}).get("template") or {}
    resources = own_container(template.get("spec") or {}).get("resources") or {}
    return str((resources.get("limits") or {}).get("memory", ""))


def pod_facts(pod: Manifest, controllers: Collection[str] = (), limits: Mapping[str, str] = _NO_LIMITS) -> PodFacts:
    """Parse a pod into facts, including the problem that keeps the pod from running, if there is one.

    `controllers` are the uids of the Jobs of the MemoryIndex and of the ReplicaSets of its Deployments. `limits` are
    the memory limits of their pods, by component.
    """
    meta, status = pod["metadata"], pod.get("status") or {}
    component = (meta.get("labels") or {}).get(LABEL_COMPONENT, "")
    return PodFacts(
        name=meta["name"],
        component=component,
        ip=status.get("podIP"),
        running=status.get("phase") == "Running",
        ended=status.get("phase") in {"Succeeded", "Failed"},
        deleting="deletionTimestamp" in meta,
        controlled=controller_uid(pod) in controllers,
        problem=_pod_problem(f"Pod {meta['namespace']}/{meta['name']}", status, component, limits.get(component, "")),
        created_at=_created_at(meta),
        unprepared_since=_unprepared_since(status),
        choices=recorded_choices(pod),
        ending_since=_ending_since(meta, status),
        unready_since=_unready_since(status),
    )


def _created_at(meta: Mapping[str, Any]) -> datetime | None:
    return parse_timestamp(meta["creationTimestamp"]) if "creationTimestamp" in meta else None


def _unprepared_since(status: Mapping[str, Any]) -> datetime | None:
    """Return the time since which a pod with a node waits for its volumes and its network; None if it does not.

    An image is pulled afterwards, so its time does not count.
    """
    unprepared = _condition(status, "PodReadyToStartContainers", "False")
    scheduled = _condition(status, "PodScheduled")
    if status.get("phase") != "Pending" or not (scheduled and unprepared):
        return None
    return max(parse_timestamp(one["lastTransitionTime"]) for one in (scheduled, unprepared))


def _ending_since(meta: Mapping[str, Any], status: Mapping[str, Any]) -> datetime | None:
    """Return the time since which a pod should have ended; None if it should run on, or has ended.

    The time of a deletion, as Kubernetes writes it, comes after the grace period.
    """
    if status.get("phase") in {"Succeeded", "Failed"}:
        return None
    if "deletionTimestamp" in meta:
        return parse_timestamp(meta["deletionTimestamp"])
    own = (one for one in status.get("containerStatuses") or () if one.get("name") in OWN_CONTAINERS)
    ends = (((one.get("state") or {}).get("terminated") or {}).get("finishedAt") for one in own)
    return next((parse_timestamp(one) for one in ends if one), None)


def _unready_since(status: Mapping[str, Any]) -> datetime | None:
    """Return the time since which a pod has run without being ready; the time that its image was pulled is left out."""
    unready = _condition(status, "Ready", "False")
    if status.get("phase") != "Running" or not unready:
        return None
    running = [one.get("state", {}).get("running") or {} for one in status.get("containerStatuses") or ()]
    starts = [parse_timestamp(one["startedAt"]) for one in running if one.get("startedAt")]
    return max([parse_timestamp(unready["lastTransitionTime"]), *starts])


def _condition(status: Mapping[str, Any], kind: str, truth: str = "True") -> Mapping[str, Any]:
    """Return the condition of this type if its status is `truth`, else an empty mapping."""
    found = (
        item for item in status.get("conditions") or () if item.get("type") == kind and item.get("status") == truth
    )
    return next(found, {})


def _pod_problem(object_name: str, status: Mapping[str, Any], component: str, limit: str) -> Problem | None:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "Unschedulable":
            said = _truncated(condition.get("message", ""))
            remedy = _place_remedy(component, said)
            return Problem(Reason.UNSCHEDULABLE, f"{object_name} cannot be scheduled: {said}", remedy)
    for init, statuses in ((True, "initContainerStatuses"), (False, "containerStatuses")):
        for container in status.get(statuses) or ():
            ended = (container.get("lastState") or {}).get("terminated") or {}
            killed = _memory_problem(container.get("name", ""), ended, component, limit)
            problem = _container_problem(object_name, container, killed, init=init)
            if problem:
                return problem
    return None


def _place_remedy(component: str, said: str) -> str:
    """Return the remedy for a pod without a node; it names the fields that say where pods of this component run."""
    everywhere = "nodeSelector, tolerations or affinity of spec.embedder.podTemplate"
    if "unbound immediate PersistentVolumeClaims" in said:
        volume = (
            "spec.embedding.source.http.volume" if component in _WITH_MODEL else "the claim that spec.swap.gate names"
        )
        return f"Make its volume claim bindable: correct the storage class of {volume}."
    if component == _FETCH:
        return (
            f"Free or add what the scheduler misses, or change spec.embedder.nodeSelector, tolerations or {everywhere}."
        )
    if component in _WITH_MODEL:
        own = "spec.embedder.resources, spec.embedder.nodeSelector, spec.embedder.tolerations"
        return f"Free or add what the scheduler misses, or change {own}, or {everywhere}."
    resources = "spec.backfill.resources, or " if component in _WITH_BACKFILL_RESOURCES else ""
    return f"Free or add what the scheduler misses, or change {resources}{everywhere}."


def _container_problem(
    object_name: str, container: Mapping[str, Any], killed: Problem | None, *, init: bool
) -> Problem | None:
    """Return what keeps a container from running; `killed` says that its last run ended for want of memory."""
    waiting = (container.get("state") or {}).get("waiting") or {}
    why, image = waiting.get("reason", ""), container.get("image", "")
    if why in _IMAGE_REASONS:
        return Problem(Reason.IMAGE_PULL_FAILED, f"{object_name} cannot pull image {image}{_pull_cause(waiting)}.")
    if why in _CONFIG_REASONS:
        return Problem(Reason.POD_REJECTED, f"{object_name} cannot start: {_truncated(waiting.get('message') or why)}")
    ended = (container.get("lastState") or {}).get("terminated") or {}
    if killed and not container.get("ready"):
        return replace(killed, message=f"{object_name} is not ready: {killed.message}")
    if container.get("ready") or not (why == "CrashLoopBackOff" or _fails_repeatedly(container, ended)):
        return None
    reported = termination_problem(ended)
    status = ended.get("exitCode", "unknown")
    what = reported.message if reported else f"container {container.get('name')} ends with status {status}."
    fallback = Reason.MODEL_NOT_VERIFIED if init else Reason.CRASH_LOOP
    reason = reported.reason if reported and reported.reason is not Reason.JOB_FAILED else fallback
    return Problem(reason, f"{object_name} keeps failing: {what}", reported.remedy if reported else "")


def _memory_problem(name: str, ended: Mapping[str, Any], component: str, limit: str) -> Problem | None:
    """Return the problem of a container that was killed because it needed too much memory; None if it was not.

    `limit` is that of the operator's own container, and admission may have added others.
    """
    if ended.get("reason") != "OOMKilled":
        return None
    if name not in OWN_CONTAINERS:
        return Problem(Reason.OOM_KILLED, f"container {name} was killed for want of memory.")
    remedy = "No field of spec raises this limit, which is the operator's own: report an issue."
    if component in _EMBEDDERS:
        remedy = "Raise spec.embedder.resources.limits.memory."
    if component in _WITH_BACKFILL_RESOURCES:
        remedy = "Raise spec.backfill.resources.limits.memory."
    cause = f"at its memory limit of {limit}" if limit else "for want of memory"
    return Problem(Reason.OOM_KILLED, f"container {name} was killed {cause}.", remedy)


def _pull_cause(waiting: Mapping[str, Any]) -> str:
    """Return the cause of a failed image pull, or an empty text if the cause is not known.

    The cause is in fixed words, because the kubelet alternates between two messages about the same failure.
    """
    text = (waiting.get("message") or "").lower()
    return next((f": {cause}" for cause, signs in _PULL_CAUSES.items() if any(sign in text for sign in signs)), "")


def _fails_repeatedly(container: Mapping[str, Any], ended: Mapping[str, Any]) -> bool:
    """Return whether a container has restarted often and its last run failed within 60 s of its start."""
    if container.get("restartCount", 0) < _MANY_RESTARTS or not ended.get("exitCode"):
        return False
    started, finished = ended.get("startedAt"), ended.get("finishedAt")
    if not (started and finished):
        return False
    return parse_timestamp(finished) - parse_timestamp(started) < _SHORT_LIFE


def termination_problem(ended: Mapping[str, Any]) -> Problem | None:
    """Parse the termination message of an operator's container; return None if the message describes no problem."""
    try:
        reported = json.loads(ended.get("message") or "")
        reason, message = str(reported["reason"]), str(reported["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    known = Reason.from_code(reason, Reason.JOB_FAILED)
    prefix = "" if known.code == reason else f"{reason}: "
    return Problem(known, _truncated(f"{prefix}{message}"), str(reported.get("remedy") or ""))


def _job_failure(status: Mapping[str, Any], pods: list[Manifest], component: str, limit: str) -> Problem:
    """Return the problem that the last pod to name one has reported, or what is known without it."""
    ends = [
        (container["state"]["terminated"], container.get("name", ""))
        for pod in pods
        for container in (pod.get("status") or {}).get("containerStatuses") or ()
        if (container.get("state") or {}).get("terminated", {}).get("exitCode")
    ]
    ends.sort(key=lambda end: end[0].get("finishedAt") or "", reverse=True)
    problems = (_memory_problem(name, end, component, limit) or termination_problem(end) for end, name in ends)
    reported = next((problem for problem in problems if problem), None)
    if reported:
        return reported
    if ends:
        return Problem(Reason.JOB_FAILED, f"its last pod ended with status {ends[0][0]['exitCode']}.")
    return Problem(
        Reason.JOB_FAILED, _truncated(_condition(status, "Failed").get("message") or "no pod of it is left.")
    )


def _truncated(text: str) -> str:
    return text if len(text) <= _MESSAGE_LIMIT else f"{text[:_MESSAGE_LIMIT]}..."
