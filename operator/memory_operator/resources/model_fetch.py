"""Build the volume claim and the Job of a model file that is fetched from a URL.

The pods that serve make no connections, so a Job fetches the file into a volume, which they mount read-only. A claim's
specification cannot be changed. Therefore the name of a claim depends on the file's digest and on the volume's
settings: another file, or another volume, is another claim. The claim itself records that its file is complete, since
the Job is deleted after a while.
"""

from dataclasses import dataclass
from urllib.parse import urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # not in the stubs

from memory_operator.api.spec import HttpSource, Manifest, MemoryIndex
from memory_operator.resources.common import (
    Images,
    container_security,
    env,
    fingerprint,
    labels,
    literal,
    metadata,
    pod_security,
)
from memory_operator.resources.jobs import job_manifest
from memory_operator.resources.pod_template import completed

CLAIM = "PersistentVolumeClaim"
COMPONENT = "fetch"
ANNOTATION_FETCHED = "memory-index.dev/fetched"  # of a claim: the digest of the complete file on its volume
FETCHED_DIRECTORY = "/var/lib/memory-embedder"  # where pods mount the volume of a model file
FETCHED_FILE = f"{FETCHED_DIRECTORY}/model.gguf"
AUTHORITY_DIRECTORY = "/var/run/memory-index-fetch-ca"
RESOURCES = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}


@dataclass(frozen=True)
class FetchRoute:
    """How whoever installs the operator lets model files be fetched.

    `proxy` is the URL of a proxy, empty for none. `no_proxy` are hosts that are fetched from directly, as in the
    variable NO_PROXY, and `proxied_hosts` the only ones that are fetched from through the proxy; a leading dot stands
    for every name below. `ca_config_map` is the name of a ConfigMap with further authorities, in each namespace that
    has objects with a URL, and `ca_key` its key.
    """

    proxy: str = ""
    no_proxy: tuple[str, ...] = ()
    proxied_hosts: tuple[str, ...] = ()
    ca_config_map: str = ""
    ca_key: str = "ca-bundle.crt"

    def leads_through_proxy(self, url: str) -> bool:
        """Return whether a URL is fetched through the proxy."""
        return bool(self.proxy) and not proxy_bypass_environment(host_of(url), {"no": ",".join(self.no_proxy)})


DIRECT = FetchRoute()


def host_of(url: str) -> str:
    """Return the host of a URL, in lower case."""
    return (urlsplit(url).hostname or "").rstrip(".")


def claim_name(index: MemoryIndex, source: HttpSource) -> str:
    """Return the name of the claim, `<index>-model-<hash>`, which differs for each digest and each kind of volume."""
    return f"{index.name}-model-{fingerprint([source.sha256, source.volume.model_dump(mode='json')])}"


def claim(index: MemoryIndex, source: HttpSource) -> Manifest:
    """Return the PersistentVolumeClaim for the file of this source."""
    volume = source.volume
    return {
        "apiVersion": "v1",
        "kind": CLAIM,
        "metadata": metadata(index, claim_name(index, source), COMPONENT),
        "spec": {
            "accessModes": list(volume.access_modes),
            "resources": {"requests": {"storage": volume.size}},
            **({"storageClassName": volume.storage_class_name} if volume.storage_class_name else {}),
        },
    }


def fetched_claim(index: MemoryIndex, source: HttpSource, live: Manifest) -> Manifest:
    """Return the live claim with the record that its file is complete.

    The specification stays the live one, because a volume that somebody has expanded cannot shrink.
    """
    desired = claim(index, source)
    annotations = {ANNOTATION_FETCHED: f"sha256:{source.sha256}"}
    return {**desired, "metadata": {**desired["metadata"], "annotations": annotations}, "spec": live["spec"]}


def is_fetched(live: Manifest) -> bool:
    """Return whether the live claim holds its complete file."""
    return ANNOTATION_FETCHED in (live["metadata"].get("annotations") or {})


def fetch_work(index: MemoryIndex, source: HttpSource) -> str:
    """Return the part of the Job's configuration fingerprint that identifies what is fetched, and to where."""
    return fingerprint([source.url, claim_name(index, source)])


def fetch_job(
    index: MemoryIndex, images: Images, sequence: int, *, source: HttpSource, route: FetchRoute = DIRECT
) -> Manifest:
    """Return the Job that fetches the file of this source into its volume: `memory-embedder fetch`.

    A failed pod is not replaced within the Job, because the command itself tries again.
    """
    template = _pod_template(index, images, source, route)
    config = f"{fetch_work(index, source)}-{fingerprint(template)}"
    return job_manifest(index, COMPONENT, config, sequence, template, pod_retries=0)


def _pod_template(index: MemoryIndex, images: Images, source: HttpSource, route: FetchRoute) -> Manifest:
    """Return the pod of the Job. It runs where embedders may run, because a volume can be bound to its first node."""
    embedder = index.spec.embedder
    variables = env(_proxy_variables(route))
    bundle = [_authority_volume(route)] if route.ca_config_map else []
    mounts = [{"name": one["name"], "mountPath": AUTHORITY_DIRECTORY, "readOnly": True} for one in bundle]
    template: Manifest = {
        "metadata": {"labels": labels(index, COMPONENT)},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": pod_security(images),
            "containers": [
                {
                    "name": COMPONENT,
                    "image": embedder.image or images.embedder,
                    "imagePullPolicy": images.pull_policy,
                    "command": [literal(part) for part in _command(source, route)],
                    **({"env": variables} if variables else {}),
                    "resources": RESOURCES,
                    "securityContext": container_security(),
                    "volumeMounts": [{"name": "model", "mountPath": FETCHED_DIRECTORY}, *mounts],
                }
            ],
            "volumes": [
                {"name": "model", "persistentVolumeClaim": {"claimName": claim_name(index, source)}},
                *bundle,
            ],
            **({"nodeSelector": dict(embedder.node_selector)} if embedder.node_selector else {}),
            **({"tolerations": list(embedder.tolerations)} if embedder.tolerations else {}),
            **({"priorityClassName": embedder.priority_class_name} if embedder.priority_class_name else {}),
        },
    }
    return completed(template, index, COMPONENT)


def _proxy_variables(route: FetchRoute) -> dict[str, str]:
    if not (route.proxy and route.proxied_hosts):  # without hosts the command would ask the proxy for any redirect
        return {}
    return {"HTTPS_PROXY": route.proxy, "HTTP_PROXY": route.proxy, "NO_PROXY": ",".join(route.no_proxy)}


def _authority_volume(route: FetchRoute) -> Manifest:
    items = [{"key": route.ca_key, "path": "ca.crt"}]
    return {"name": "ca", "configMap": {"name": route.ca_config_map, "items": items}}


def _command(source: HttpSource, route: FetchRoute) -> list[str]:
    """Return the command; it limits the file to the volume's size, which not every volume plugin enforces."""
    limit = str(source.volume.mebibytes)
    options = {"--url": source.url, "--sha256": source.sha256, "--to": FETCHED_FILE, "--max-mebibytes": limit}
    given = [part for option in options.items() for part in option]
    if route.ca_config_map:
        given += ["--ca-file", f"{AUTHORITY_DIRECTORY}/ca.crt"]
    if route.proxy:
        given += [part for host in route.proxied_hosts for part in ("--proxied-host", host)]
    return ["memory-embedder", "fetch", *given]
