"""Build what every Job of the operator has in common: its name, its labels and how its pods may fail.

The operator never changes a Job, because the pod template of a Job is immutable. Each Job carries the fingerprint of
its configuration and a sequence number, and a retry is a new Job.
"""

from memory_operator.api.spec import Manifest, MemoryIndex
from memory_operator.resources.common import ANNOTATION_SEQUENCE, LABEL_CONFIG, fingerprint, metadata

JOB_TTL_SECONDS = 3600  # long enough to be read by a person; what is needed later is recorded elsewhere
# Of a Job that stays: the greatest number that Kubernetes takes, since policies add a time where there is none.
NEVER_SECONDS = 2**31 - 1
# Usage, waiting for something, needs a person, a gate that cannot decide: the same pod would fail again.
EXIT_CODES_WITHOUT_RETRY = [2, 3, 4, 5]
# A Job that hangs ends, and another one follows that continues its work.
SHORT_JOB_SECONDS = 6 * 3600
LONG_JOB_SECONDS = 7 * 24 * 3600  # of Jobs that embed a table or build its index


def job_manifest(
    index: MemoryIndex,
    component: str,
    config: str,
    sequence: int,
    template: Manifest,
    *,
    seconds: int = SHORT_JOB_SECONDS,
    kept_seconds: int = JOB_TTL_SECONDS,
    pod_retries: int = 6,
) -> Manifest:
    """Return a Job that runs pods of the template for at most `seconds`.

    Once it has ended it stays for `kept_seconds`. Kubernetes replaces a failed pod `pod_retries` times, unless its exit
    code says that a retry cannot help.
    """
    meta = metadata(index, f"{index.name}-{component}-{fingerprint([config, sequence])[:8]}", component)
    meta["labels"][LABEL_CONFIG] = config
    meta["annotations"] = {ANNOTATION_SEQUENCE: str(sequence)}
    (container,) = template["spec"]["containers"]
    without_retry = {"containerName": container["name"], "operator": "In", "values": EXIT_CODES_WITHOUT_RETRY}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": meta,
        "spec": {
            "activeDeadlineSeconds": seconds,
            "backoffLimit": pod_retries,
            "ttlSecondsAfterFinished": kept_seconds,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                    {"action": "FailJob", "onExitCodes": without_retry},
                ]
            },
            "template": template,
        },
    }
