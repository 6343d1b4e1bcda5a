"""Objects as they are applied: golden files show every field, single tests say why some of them matter.

After a wanted change: `UPDATE_GOLDEN=1 pytest tests/unit/memory_operator/test_operator_resources.py`, then read the
diff.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from memory_operator.api.embedder import CaConfigMap
from memory_operator.resources import cnpg, embedder, model_fetch, workers
from memory_operator.resources.embedder_ca import embedder_ca_config_map
from memory_operator.resources.network_policies import embedder_policy, fetch_policy, worker_policy
from memory_recall.errors import LockNotAvailable
from tests.support.yaml_text import read_yaml
from tests.unit.memory_operator.conftest import World, deep_update

GOLDEN = Path(__file__).parent / "golden"
GPU = {
    "embedding": {
        "model": "bge-large-en-v1.5",
        "dimensions": 1024,
        "source": {"http": {"url": "https://models.example/bge.gguf", "sha256": "a" * 64}},
    },
    "embedder": {
        "gpuLayers": -1,
        "resources": {"limits": {"nvidia.com/gpu": 1, "example.com/gpu-memory-mib": "3000"}},
        "nodeSelector": {"nvidia.com/gpu.present": "true"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Equal", "value": "true", "effect": "NoSchedule"}],
        "runtimeClassName": "nvidia",
        "priorityClassName": "gpu-workload",
        "podAnnotations": {"team": "memory"},
    },
}
PVC = {"embedding": {"source": {"pvc": {"claimName": "models", "path": "m/x.gguf", "digest": "sha256:" + "b" * 64}}}}
TLS = {"embedder": {"tls": {"secretName": "serving"}}}
ROLE = {"database": {"credentials": {"clientCertificate": {"secretName": "app-certificate"}}}}
IMAGE = {
    "embedding": {"source": {"image": {"reference": "reg/m:1", "path": "/m/x.gguf", "digest": "sha256:" + "c" * 64}}}
}


def source(world: World, **volume: Any) -> Any:
    """The URL of the embedder that has a GPU, with this volume."""
    return world.index(**deep_update(GPU, {"embedding": {"source": {"http": {"volume": volume}}}})).fetched_source


ROUTE = model_fetch.FetchRoute("http://10.9.8.7:3128", (".home.example",), ("models.example",), "corporate-ca")
FIXED = ("runAsUser", "runAsGroup", "fsGroup", "supplementalGroups")
BUILDERS: dict[str, Callable[[Any], Any]] = {
    "migrate-job": lambda w: workers.migrate_job(w.index(), w.images, 0),
    "index-job": lambda w: workers.index_job(w.index(), w.images, 1),
    "backfill-job": lambda w: workers.backfill_job(w.index(backfill={"parallelism": 3, "batchSize": 16}), w.images, 0),
    "graph-job": lambda w: workers.graph_job(w.index(graph={"enabled": True}), w.images, 0),
    "uninstall-job": lambda w: workers.uninstall_job(w.index(), w.images, 0),
    "swap-job": lambda w: workers.swap_job(
        w.index(swap={"gate": {"configMap": {"name": "queries"}}}), w.images, 0, active="m", dimensions=384
    ),
    "swap-abort-job": lambda w: workers.swap_abort_job(w.index(), w.images, 0),
    "sync-deployment": lambda w: workers.sync_deployment(w.index(), w.images, replicas=1),
    "sync-deployment-client-certificate": lambda w: workers.sync_deployment(w.index(**ROLE), w.images, replicas=1),
    "embedder-cpu": lambda w: embedder.objects(w.index(), w.images, replicas=1),
    "embedder-gpu": lambda w: embedder.objects(w.index(**GPU), w.images, replicas=2),
    "embedder-tls": lambda w: embedder.objects(w.index(**TLS), w.images, replicas=1),
    "sync-deployment-tls": lambda w: workers.sync_deployment(
        w.index(**TLS).over_tls(CaConfigMap(name="mem-embedder-ca", key="team.mem.crt")), w.images, replicas=1
    ),
    "embedder-ca": lambda w: embedder_ca_config_map(w.index(**TLS), {"team.mem.crt": "PEM"}),
    "embedder-policy": lambda w: embedder_policy(w.index(), operator_namespace="memory-index-system"),
    "worker-policy": lambda w: worker_policy(w.index(), (5432,)),
    "fetch-job": lambda w: model_fetch.fetch_job(w.index(**GPU), w.images, 0, source=source(w)),
    "fetch-job-by-proxy": lambda w: model_fetch.fetch_job(w.index(**GPU), w.images, 0, source=source(w), route=ROUTE),
    "fetch-policy-by-proxy": lambda w: fetch_policy(w.index(**GPU), source(w), ROUTE),
    "fetch-policy": lambda w: fetch_policy(w.index(**GPU), source(w)),
    "model-claim": lambda w: model_fetch.claim(
        w.index(**GPU), source(w, size="2Gi", storageClassName="nfs", accessModes=["ReadWriteMany"])
    ),
    "embedder-pvc": lambda w: embedder.deployment(w.index(**PVC), w.images, replicas=1),
    "embedder-image": lambda w: embedder.deployment(w.index(**IMAGE), w.images, replicas=1),
    "database": lambda w: cnpg.new_database_object(w.index(), cluster=("dbaas", "pg"), owner="owner", version=None),
}


@pytest.mark.parametrize("name", BUILDERS)
def test_objects_equal_their_golden_files(world: World, name: str) -> None:
    built = BUILDERS[name](world)
    plain = json.loads(json.dumps(built))
    path = GOLDEN / f"{name}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(yaml.safe_dump(plain, sort_keys=False, width=120), encoding="utf-8")
    assert plain == read_yaml(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", [name for name in BUILDERS if "-job" in name])
def test_a_job_whose_pod_waited_for_a_lock_in_vain_fails_at_once(world: World, name: str) -> None:
    """So its reason is reported, and the next Job follows as after any other wait. A pod waits ten minutes for a lock;
    Kubernetes would replace it six times, and a swap would measure its gate each time before that.
    """
    failing = [rule for rule in BUILDERS[name](world)["spec"]["podFailurePolicy"]["rules"] if "onExitCodes" in rule]
    assert [rule["action"] for rule in failing] == ["FailJob"]
    assert LockNotAvailable.exit_code in failing[0]["onExitCodes"]["values"]


def pod_spec(manifest: Any) -> Any:
    return manifest["spec"]["template"]["spec"]


def pods(world: World) -> list[Any]:
    manifests = [build(world) for build in BUILDERS.values()]
    flat = [item for built in manifests for item in (built if isinstance(built, tuple) else (built,))]
    return [pod_spec(item) for item in flat if item["kind"] in {"Job", "Deployment"}]


@pytest.mark.promise("restricted-pods")
def test_every_container_meets_the_restricted_pod_security_standard(world: World) -> None:
    for pod in pods(world):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("name", BUILDERS)
def test_no_pod_states_a_user_or_a_group_where_the_cluster_assigns_them(world: World, name: str) -> None:
    """OpenShift refuses a pod whose user or group is not of the range of its namespace."""
    images = world.images.model_copy(update={"user": "assigned"})
    built = json.dumps(BUILDERS[name](SimpleNamespace(index=world.index, images=images)))
    assert not [
        field for field in ("runAsUser", "runAsGroup", "fsGroup", "supplementalGroups") if f'"{field}"' in built
    ]
    assert ('"securityContext"' in built) is ('"containers"' in built)


def test_a_job_whose_pods_were_refused_is_replaced_once_the_cluster_may_assign_the_user(world: World) -> None:
    images = world.images.model_copy(update={"user": "assigned"})
    before, after = (workers.config_fingerprint(world.index(), one, "migrate") for one in (world.images, images))
    assert (workers.work_of(before), before != after) == (workers.work_of(after), True)


def test_the_connection_uri_is_mounted_and_never_in_the_environment(world: World) -> None:
    job = workers.migrate_job(world.index(), world.images, 0)
    container = pod_spec(job)["containers"][0]
    assert [e["value"] for e in container["env"] if e["name"] == "MEMORY_DATABASE_URL_FILE"] == [
        "/var/run/memory-index/dsn"
    ]
    assert not [e for e in container["env"] if e["name"] == "MEMORY_DATABASE_URL"]
    assert container["volumeMounts"][0]["mountPath"] == "/var/run/memory-index", (
        "a subPath mount would not see a rotation"
    )
    assert "subPath" not in container["volumeMounts"][0]


def test_a_slow_model_is_never_killed_while_it_loads(world: World) -> None:
    probe = pod_spec(embedder.deployment(world.index(), world.images, replicas=1))["containers"][0]["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 1800
    assert probe["httpGet"]["path"] == "/healthz"


def test_probes_and_scrapers_use_a_port_that_callers_cannot_exhaust(world: World) -> None:
    made = embedder.deployment(world.index(), world.images, replicas=1)
    container = pod_spec(made)["containers"][0]
    assert {container[f"{kind}Probe"]["httpGet"]["port"] for kind in ("startup", "liveness", "readiness")} == {
        "metrics"
    }
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports["metrics"] != ports["http"]
    assert made["spec"]["template"]["metadata"]["annotations"]["prometheus.io/port"] == str(ports["metrics"])
    assert embedder.service(world.index())["spec"]["ports"][0]["targetPort"] == "http"
    command = container["command"]
    assert command[command.index("--probe-port") + 1] == str(ports["metrics"])


@pytest.mark.parametrize("name", ["sync-deployment", "backfill-job", "swap-job"])
def test_every_worker_that_embeds_is_scraped(world: World, name: str) -> None:
    """The rows that are still pending are known to backfill and swap alone, and the dashboard shows them."""
    template = BUILDERS[name](world)["spec"]["template"]
    (container,) = template["spec"]["containers"]
    port = str(workers.METRICS_PORT)
    assert {"name": "MEMORY_METRICS_PORT", "value": port} in container["env"]
    assert [(one["name"], str(one["containerPort"])) for one in container["ports"]] == [("metrics", port)]
    annotations = template["metadata"]["annotations"]
    assert (annotations["prometheus.io/scrape"], annotations["prometheus.io/port"]) == ("true", port)
    allowed = worker_policy(world.index(), (5432,))["spec"]
    (components,) = allowed["podSelector"]["matchExpressions"]
    assert template["metadata"]["labels"][components["key"]] in components["values"]
    (reading,) = allowed["ingress"]
    assert [str(one["port"]) for one in reading["ports"]] == [port]


def test_a_sync_worker_is_scraped_beside_its_readiness_and_loses_that_after_half_a_minute(world: World) -> None:
    """A failover of seconds does not make an object flap whose rows only wait for it."""
    template = BUILDERS["sync-deployment"](world)["spec"]["template"]
    probe = template["spec"]["containers"][0]["readinessProbe"]
    assert (probe["httpGet"]["path"], template["metadata"]["annotations"]["prometheus.io/path"]) == (
        "/readyz",
        "/metrics",
    )
    assert probe["periodSeconds"] * probe["failureThreshold"] == 30


@pytest.mark.promise("model-download-bounded")
def test_the_volume_of_a_copied_model_cannot_fill_the_nodes_disk(world: World) -> None:
    (volume,) = [
        volume
        for volume in pod_spec(embedder.deployment(world.index(**IMAGE), world.images, replicas=1))["volumes"]
        if volume["name"] == "model"
    ]
    assert volume["emptyDir"]["sizeLimit"] == "9Gi"


def test_the_cpu_is_allowed_only_with_zero_gpu_layers(world: World) -> None:
    on_cpu = pod_spec(embedder.deployment(world.index(), world.images, replicas=1))["containers"][0]["command"]
    on_gpu = pod_spec(embedder.deployment(world.index(**GPU), world.images, replicas=1))["containers"][0]["command"]
    assert "--allow-cpu" in on_cpu
    assert "--allow-cpu" not in on_gpu


def test_resources_pass_through_untouched(world: World) -> None:
    container = pod_spec(embedder.deployment(world.index(**GPU), world.images, replicas=1))["containers"][0]
    assert container["resources"] == GPU["embedder"]["resources"]


def test_lists_of_resources_without_an_entry_leave_the_defaults(world: World) -> None:
    """They remain where a patch removes the GPU, and a pod without a limit of memory could take the node's."""
    empty = {"resources": {"requests": {}, "limits": {}}}
    index = world.index(embedder=empty, backfill=empty)
    made = {
        "embedder": (embedder.deployment(index, world.images, replicas=1), embedder.DEFAULT_RESOURCES),
        "backfill": (workers.backfill_job(index, world.images, 1), workers.WORKER_RESOURCES),
    }
    for name, (manifest, default) in made.items():
        assert pod_spec(manifest)["containers"][0]["resources"] == default, name


def test_the_gpu_memory_that_a_model_may_take_is_the_engines_limit(world: World) -> None:
    limited = world.index(**{**GPU, "embedder": {**GPU["embedder"], "gpuMemory": 1500}})
    command = pod_spec(embedder.deployment(limited, world.images, replicas=1))["containers"][0]["command"]
    assert command[command.index("--gpu-memory-limit") + 1] == "1500"
    unlimited = pod_spec(embedder.deployment(world.index(**GPU), world.images, replicas=1))["containers"][0]["command"]
    assert "--gpu-memory-limit" not in unlimited


@pytest.mark.finding("M1")
def test_an_embedder_demands_the_key_that_its_workers_send(world: World) -> None:
    index = world.index(embedder={"apiKey": {"secretName": "own", "key": "k"}})
    serving = pod_spec(embedder.deployment(index, world.images, replicas=1))
    sending = pod_spec(workers.sync_deployment(index, world.images, replicas=1))
    command = serving["containers"][0]["command"]
    env = {item["name"]: item["value"] for item in sending["containers"][0]["env"]}
    for pod, path in (
        (serving, command[command.index("--api-key-file") + 1]),
        (sending, env["MEMORY_EMBEDDER_API_KEY_FILE"]),
    ):
        (mount,) = [item for item in pod["containers"][0]["volumeMounts"] if item["name"] == "key"]
        (volume,) = [item["secret"] for item in pod["volumes"] if item["name"] == "key"]
        assert (path, mount["readOnly"]) == (f"{mount['mountPath']}/key", True)
        assert (volume["secretName"], volume["items"]) == ("own", [{"key": "k", "path": "key"}])


@pytest.mark.finding("D24")
def test_the_embedders_key_is_mounted_as_a_file_and_never_in_the_environment(world: World) -> None:
    external = {"url": "http://e:8080", "apiKey": {"secretName": "key", "key": "k"}}
    pod = pod_spec(workers.sync_deployment(world.index(embedder={"external": external}), world.images, replicas=1))
    (container,) = pod["containers"]
    env = {item["name"]: item["value"] for item in container["env"]}
    (mount,) = [item for item in container["volumeMounts"] if item["name"] == "key"]
    assert env["MEMORY_EMBEDDER_API_KEY_FILE"] == f"{mount['mountPath']}/key"
    assert "subPath" not in mount, "a subPath mount would not see a rotation"
    (volume,) = [item["secret"] for item in pod["volumes"] if item["name"] == "key"]
    assert (volume["secretName"], volume["items"]) == ("key", [{"key": "k", "path": "key"}])


def test_jobs_that_ask_no_embedder_hold_no_key_of_one_and_start_without_its_secret(world: World) -> None:
    """A Secret that is not there would keep a migration from starting, and a deletion from undoing it."""
    index = world.index(embedder={"external": {"url": "http://e:8080", "apiKey": {"secretName": "key"}}})
    for job in (
        workers.migrate_job(index, world.images, 0),
        workers.index_job(index, world.images, 0),
        workers.uninstall_job(index, world.images, 0),
        workers.swap_abort_job(index, world.images, 0),
        workers.graph_job(index, world.images, 0),
    ):
        pod = pod_spec(job)
        assert [volume["name"] for volume in pod["volumes"]] == ["dsn", "database-ca", "tmp"], job["metadata"]["name"]
        assert "MEMORY_EMBEDDER_API_KEY_FILE" not in {item["name"] for item in pod["containers"][0]["env"]}


def test_without_a_key_no_second_secret_is_mounted(world: World) -> None:
    pod = pod_spec(workers.sync_deployment(world.index(), world.images, replicas=1))
    assert [volume["name"] for volume in pod["volumes"]] == ["dsn", "database-ca", "tmp"]


@pytest.mark.finding("D22")
def test_an_init_container_has_the_processor_and_memory_of_the_main_one_and_no_gpu(world: World) -> None:
    """Quotas of a namespace demand them of every container."""
    amounts = {"requests": {"cpu": "1", "nvidia.com/gpu": 1}, "limits": {"memory": "3Gi", "nvidia.com/gpu": 1}}
    index = world.index(**{**IMAGE, "embedder": {"resources": amounts}})
    (init,) = pod_spec(embedder.deployment(index, world.images, replicas=1))["initContainers"]
    assert init["resources"] == {"requests": {"cpu": "1"}, "limits": {"memory": "3Gi"}}


@pytest.mark.finding("D8")
def test_every_job_ends_by_itself_one_day(world: World) -> None:
    for name in ("migrate-job", "index-job", "backfill-job", "uninstall-job", "fetch-job"):
        assert BUILDERS[name](world)["spec"]["activeDeadlineSeconds"] > 0


@pytest.mark.parametrize(("decision", "variable"), [("Refuse", None), ("Keep", "keep"), ("Discard", "discard")])
def test_only_the_migration_gets_the_decision_about_existing_vectors(
    world: World, decision: str, variable: str | None
) -> None:
    index = world.index(database={"existingVectors": decision})
    job, sync = workers.migrate_job(index, world.images, 0), workers.sync_deployment(index, world.images, replicas=1)
    migration, others = (pod_spec(item)["containers"][0]["command"] for item in (job, sync))
    assert migration[2:4] == (["--existing-vectors", variable] if variable else ["--claim", migration[3]])
    assert "--existing-vectors" not in others


def test_a_decision_about_existing_vectors_starts_the_migration_at_once(world: World) -> None:
    """It is another configuration, so the back-off of the refused Job does not delay it."""
    configs = {
        workers.config_fingerprint(world.index(database={"existingVectors": decision}), world.images, "migrate")
        for decision in ("Refuse", "Keep", "Discard")
    }
    assert len(configs) == 3


def test_a_jobs_name_depends_on_its_configuration_and_sequence(world: World) -> None:
    name = workers.migrate_job(world.index(), world.images, 0)["metadata"]["name"]
    assert name == workers.migrate_job(world.index(), world.images, 0)["metadata"]["name"]
    assert name != workers.migrate_job(world.index(), world.images, 1)["metadata"]["name"]
    assert name.startswith("mem-migrate-")
    assert len("x" * 40 + name.removeprefix("mem")) <= 63


@pytest.mark.parametrize(
    ("component", "spec"),
    [
        ("backfill", {"backfill": {"resources": {"limits": {"memory": "1Gi"}}}}),
        ("backfill", {"backfill": {"batchSize": 8}}),
        ("backfill", {"backfill": {"maxAttempts": 9}}),
        ("swap", {"backfill": {"resources": {"limits": {"memory": "1Gi"}}}}),
        ("migrate", {"database": {"credentials": {"key": "other"}}}),
    ],
)
def test_a_change_of_what_a_jobs_pods_are_made_from_is_another_configuration_of_the_same_work(
    world: World, component: str, spec: dict[str, Any]
) -> None:
    before = workers.config_fingerprint(world.index(), world.images, component)
    after = workers.config_fingerprint(world.index(**spec), world.images, component)
    assert before != after
    assert workers.work_of(before) == workers.work_of(after)


def test_an_operator_upgrade_is_other_work_for_the_migration_alone(world: World) -> None:
    newer = world.images.model_copy(update={"operator": "op:2"})
    for component in ("migrate", "index", "backfill", "swap", "graph", "uninstall"):
        before = workers.config_fingerprint(world.index(), world.images, component)
        after = workers.config_fingerprint(world.index(), newer, component)
        assert before != after
        assert (workers.work_of(before) == workers.work_of(after)) is (component != "migrate")
