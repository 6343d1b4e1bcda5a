"""Build the pods of workers, which run the `memory` command.

The connection URI, the certificate and key of its role, and the embedder's API key are mounted as files and never put
into the environment. Therefore a rotated value is used at the next connection or request, and `kubectl describe` does
not show the value.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from memory_operator.api.embedder import CaConfigMap, CaSecret, SecretKey
from memory_operator.api.spec import Manifest, MemoryIndex
from memory_operator.resources.common import (
    AUTHORITY_DIRECTORY,
    CLIENT_DIRECTORY,
    KEY_DIRECTORY,
    LABEL_COMPONENT,
    NEXT_KEY_DIRECTORY,
    Images,
    certificate_files,
    container_security,
    env,
    labels,
    literal,
    own_container,
    plain,
    pod_security,
    scraped,
    secret_file,
)
from memory_operator.resources.database_ca import CA_FILE, ca_mount, ca_volume
from memory_operator.resources.embedder import NEXT_COMPONENT, embedder_options, embedder_url
from memory_operator.resources.pod_template import completed
from memory_recall.embedding.apis import OWN_OPTIONS, EmbedderApi, EmbedderOptions
from memory_recall.errors import InvalidConfiguration
from memory_recall.postgres.identity_sql import DatabaseIdentity

DSN_DIRECTORY = "/var/run/memory-index"
_TLS_MODES = {"Require": "require", "VerifyCA": "verify-ca", "VerifyFull": "verify-full"}  # as libpq names them
_EMBEDDER_URL = "MEMORY_EMBEDDER_URL"
_OPTIONS = {
    "api": "MEMORY_EMBEDDER_API",
    "served_as": "MEMORY_EMBEDDER_SERVED_AS",
    "query_prefix": "MEMORY_EMBEDDER_QUERY_PREFIX",
    "document_prefix": "MEMORY_EMBEDDER_DOCUMENT_PREFIX",
}
_AUTHORITY_MOUNT: Manifest = {"name": "embedder-ca", "mountPath": AUTHORITY_DIRECTORY, "readOnly": True}
_SECRET, _CONFIG_MAP = "secret", "configMap"  # the sources of a projected volume
_DSN, _CLIENT, _KEY, _NEXT_KEY = "dsn", "client", "key", "next-key"  # our volumes that hold a Secret
ASKING = frozenset({"backfill", "sync", "swap"})  # the components that send texts to an embedder


@dataclass(frozen=True)
class ConfiguredEmbedder:
    """The URL of the embedder that existing pods send texts to, the Secret with its API key, and its authority.

    `options` name its API and the model's name there.
    """

    url: str
    key: SecretKey | None = None
    options: EmbedderOptions = OWN_OPTIONS
    authority: CaSecret | CaConfigMap | None = None


@dataclass(frozen=True)
class UsedEmbedders:
    """The embedders that a worker sends texts to, with their API keys.

    A swap sends texts to the embedders of both models. `url`, `options` and `key` are then those of the active model,
    and `next_key` is the key of the next model's embedder if it is another one. `egress` says whether texts leave the
    cluster, and `authorities` are what holds certificates, that of the active model's embedder first.
    """

    url: str = ""
    options: EmbedderOptions = OWN_OPTIONS
    egress: bool = False
    key: SecretKey | None = None
    next_key: SecretKey | None = None
    authorities: tuple[CaSecret | CaConfigMap, ...] = ()


def pod_template(
    index: MemoryIndex,
    images: Images,
    component: str,
    command: list[str],
    *,
    restart: str,
    resources: Manifest,
    metrics_port: int = 0,
    active: ConfiguredEmbedder | None = None,
) -> Manifest:
    """Return the pod template of a worker that runs one command.

    With `metrics_port` 0, the worker serves no metrics. `active` is the embedder of the active model for the Job of a
    swap, if another embedder is specified now.
    """
    used = used_embedders(index, component, active)
    files = _secret_files(index, used)
    template: Manifest = {
        "metadata": {"labels": labels(index, component)},
        "spec": {
            "restartPolicy": restart,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": pod_security(images),
            "terminationGracePeriodSeconds": 30,
            "containers": [
                {
                    "name": "memory",
                    "image": images.operator,
                    "imagePullPolicy": images.pull_policy,
                    "command": [literal(part) for part in command],
                    "env": settings(index, metrics_port, used),
                    "resources": resources,
                    "securityContext": container_security(),
                    "volumeMounts": [
                        *({"name": name, "mountPath": path, "readOnly": True} for name, (path, _) in files.items()),
                        *([_AUTHORITY_MOUNT] if used.authorities else []),
                        *([ca_mount()] if index.has_database_ca else []),
                        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a private emptyDir, the only writable path
                    ],
                }
            ],
            "volumes": [
                *({"name": name, "secret": secret} for name, (_, secret) in files.items()),
                *([_authority_volume(used.authorities)] if used.authorities else []),
                *([ca_volume(index)] if index.has_database_ca else []),
                {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
            ],
        },
    }
    pod = completed(template, index, component)
    if metrics_port:
        pod["spec"]["containers"][0]["ports"] = [{"name": "metrics", "containerPort": metrics_port, "protocol": "TCP"}]
        pod["metadata"]["annotations"] = {**pod["metadata"]["annotations"], **scraped(metrics_port)}
    return pod


def used_embedders(index: MemoryIndex, component: str, active: ConfiguredEmbedder | None = None) -> UsedEmbedders:
    """Return the embedders that the component sends texts to; `active` is as in `pod_template`.

    A component that sends no texts mounts no API key, so its pods start even if the Secret does not exist.
    """
    specified = ConfiguredEmbedder(
        embedder_url(index), index.embedder_key, embedder_options(index), index.embedder_authority
    )
    first, asks = active or specified, component in ASKING
    authorities = tuple(one for one in dict.fromkeys((first.authority, specified.authority)) if one)
    return UsedEmbedders(
        url=first.url,
        options=first.options,
        egress=asks and any(used.options.leaves_cluster(used.url) for used in (first, specified)),
        key=first.key if asks else None,
        next_key=specified.key if asks and specified.key != first.key else None,
        authorities=authorities if asks else (),
    )


def configured_embedder(worker: Manifest) -> ConfiguredEmbedder | None:
    """Return the embedder that a worker's existing Deployment is configured for; None if it names none."""
    pod = worker["spec"]["template"]["spec"]
    values = _values(pod)
    url = values.get(_EMBEDDER_URL)
    if not url:
        return None
    keys = [
        SecretKey(secret_name=secret["secretName"], key=item["key"])
        for secret in _secret_volumes(pod, {_KEY})
        for item in secret.get("items") or ()
    ]
    authorities = [
        (CaSecret if kind == _SECRET else CaConfigMap)(name=source["name"], key=item["key"])
        for kind, source in _authority_sources(pod)
        for item in source.get("items") or ()
    ]
    return ConfiguredEmbedder(
        url, keys[0] if keys else None, _options_of(values), authorities[0] if authorities else None
    )


def called_embedder(worker: Manifest) -> str | None:
    """Return the URL of the embedder that a worker's existing Deployment names; None if it names none.

    Nothing else of the Deployment is read, so one that somebody else has made does no harm here.
    """
    return _values(worker["spec"]["template"]["spec"]).get(_EMBEDDER_URL) or None


def _values(pod: Manifest) -> dict[str, str]:
    return {item["name"]: plain(item.get("value") or "") for item in own_container(pod).get("env") or ()}


def _options_of(values: Mapping[str, str]) -> EmbedderOptions:
    """Read the options of a worker's embedder from its environment variables; return ours if they are unusable."""
    given = {field: values.get(variable) or None for field, variable in _OPTIONS.items()}
    try:
        api = EmbedderApi(given["api"] or EmbedderApi.MEMORY_INDEX)
        return EmbedderOptions(api, given["served_as"], given["query_prefix"], given["document_prefix"])
    except (ValueError, InvalidConfiguration):
        return OWN_OPTIONS


def _option_settings(options: EmbedderOptions) -> Manifest:
    """Return the environment variables with the options of a third-party embedder; none for ours."""
    if options.api is EmbedderApi.MEMORY_INDEX:
        return {}
    found = {variable: getattr(options, field) for field, variable in _OPTIONS.items()}
    return {variable: str(value) for variable, value in found.items() if value is not None}


def destinations(template: Manifest) -> frozenset[ConfiguredEmbedder]:
    """Return the embedders that the pods of a worker's existing template may send texts to, without their keys."""
    if (template.get("metadata") or {}).get("labels", {}).get(LABEL_COMPONENT) not in ASKING:
        return frozenset()
    container = own_container(template.get("spec") or {})
    command = [plain(part) for part in container.get("command") or ()]
    values = {item["name"]: plain(item.get("value") or "") for item in container.get("env") or ()}
    apis = [part.removeprefix("--api=") for part in command if part.startswith("--api=")]
    following = _options_of({_OPTIONS["api"]: apis[0] if apis else ""})
    found = [ConfiguredEmbedder(values.get(_EMBEDDER_URL, ""), options=_options_of(values))]
    found += [
        ConfiguredEmbedder(command[at + 1], options=following) for at, one in enumerate(command) if one == "--url"
    ]
    return frozenset(one for one in found if one.url)


def mounted_secrets(template: Manifest) -> frozenset[str]:
    """Return the names of the Secrets in the volumes that the operator has given the pods of an existing template.

    Volumes of other names come from admission, which needs no consent of ours: policies add a Secret to every pod.
    """
    pod = template.get("spec") or {}
    named = [secret.get("secretName", "") for secret in _secret_volumes(pod, {_DSN, _CLIENT, _KEY, _NEXT_KEY})]
    certificates = [source.get("name", "") for kind, source in _authority_sources(pod) if kind == _SECRET]
    return frozenset([*named, *certificates]) - {""}


def _secret_volumes(pod: Mapping[str, Any], names: set[str]) -> list[Manifest]:
    """Return the Secrets of the volumes with these names."""
    return [volume["secret"] for volume in pod.get("volumes") or () if volume["name"] in names and volume.get("secret")]


def _authority_volume(authorities: tuple[CaSecret | CaConfigMap, ...]) -> Manifest:
    """Return the volume with a file of certificates from each Secret or ConfigMap."""
    sources = [
        {
            _SECRET if isinstance(one, CaSecret) else _CONFIG_MAP: {
                "name": one.name,
                "items": [{"key": one.key, "path": f"{number}.crt"}],
            }
        }
        for number, one in enumerate(authorities)
    ]
    return {"name": _AUTHORITY_MOUNT["name"], "projected": {"defaultMode": 0o440, "sources": sources}}


def _authority_sources(pod: Mapping[str, Any]) -> list[tuple[str, Manifest]]:
    """Return the Secrets and ConfigMaps with certificates in a pod of ours; other projected volumes are of others."""
    volumes = [volume for volume in pod.get("volumes") or () if volume["name"] == _AUTHORITY_MOUNT["name"]]
    sources = [source for volume in volumes for source in (volume.get("projected") or {}).get("sources") or ()]
    return [(kind, source[kind]) for source in sources for kind in (_SECRET, _CONFIG_MAP) if source.get(kind)]


def _secret_files(index: MemoryIndex, used: UsedEmbedders) -> dict[str, tuple[str, Manifest]]:
    """Return, by volume name, the mount path and the source of each volume that holds keys of a Secret as files."""
    dsn = secret_file(index.secret_name, index.spec.database.credentials.key, "dsn")
    certificate = index.certificate_secret
    return {
        _DSN: (DSN_DIRECTORY, dsn),
        **({_CLIENT: (CLIENT_DIRECTORY, certificate_files(certificate))} if certificate else {}),
        **{
            name: (path, secret_file(key.secret_name, key.key, "key"))
            for name, path, key in (
                (_KEY, KEY_DIRECTORY, used.key),
                (_NEXT_KEY, NEXT_KEY_DIRECTORY, used.next_key),
            )
            if key
        },
    }


def settings(index: MemoryIndex, metrics_port: int, used: UsedEmbedders) -> list[Manifest]:
    """Return the environment variables of a worker. With `metrics_port` 0, the worker serves no metrics."""
    spec = index.spec
    values = {
        "MEMORY_DATABASE_URL_FILE": f"{DSN_DIRECTORY}/dsn",
        "MEMORY_DATABASE_IDENTITY": str(
            DatabaseIdentity(index.system_identifier, spec.database.name, index.cluster_name)
        ),
        "MEMORY_DATABASE_TLS_MODE": _TLS_MODES.get(index.database_tls_mode or "", ""),
        "MEMORY_DATABASE_CA_FILE": CA_FILE if index.has_database_ca else "",
        "MEMORY_DATABASE_CERTIFICATE_FOLDER": CLIENT_DIRECTORY if index.certificate_secret else "",
        "MEMORY_TABLE": spec.database.table,
        "MEMORY_MODEL": spec.embedding.model,
        "MEMORY_DIMENSIONS": str(spec.embedding.dimensions),
        _EMBEDDER_URL: used.url,
        "MEMORY_EMBEDDER_API_KEY_FILE": f"{KEY_DIRECTORY}/key" if used.key else "",
        "MEMORY_EMBEDDER_CA_FILE": AUTHORITY_DIRECTORY if used.authorities else "",
        "MEMORY_EMBEDDER_TRUSTED_HOSTS": _next_host(index) if _may_share_key(index, used) else "",
        **_option_settings(used.options),
        "MEMORY_QUERY_EGRESS": spec.embedding.query_egress.lower() if used.egress else "",
        "MEMORY_INDEX_M": str(spec.index.m),
        "MEMORY_INDEX_EF_CONSTRUCTION": str(spec.index.ef_construction),
        "MEMORY_LOG_FORMAT": "json",
        "MEMORY_METRICS_PORT": str(metrics_port) if metrics_port else "",
        "MEMORY_BACKFILL_PARTITIONS": str(spec.backfill.parallelism),
        "MEMORY_BACKFILL_MAX_ATTEMPTS": str(spec.backfill.max_attempts),
        "MEMORY_BACKFILL_BATCH_SIZE": str(spec.backfill.batch_size or ""),
    }
    return env(values)


def _may_share_key(index: MemoryIndex, used: UsedEmbedders) -> bool:
    """Return whether the second embedder of a swap asks for the key of the embedder that a worker is configured for.

    Both are the operator's then. From the flip to the hand-over the database names the second one.
    """
    return used.key is not None and index.runs_embedder and used.url == embedder_url(index)


def _next_host(index: MemoryIndex) -> str:
    return urlsplit(embedder_url(index, NEXT_COMPONENT)).hostname or ""
