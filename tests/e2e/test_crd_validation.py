"""The API server itself, without a webhook, refuses each malformed MemoryIndex and says what to do."""

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from devcluster.cluster import Cluster
from devcluster.errors import CommandError
from tests.e2e.crd_cases import FORBIDDEN_CHANGES, MALFORMED, Case
from tests.e2e.crd_objects import (
    CALLERS,
    CUSTOM,
    EXTERNAL,
    FETCHED,
    GOOD,
    PLAIN,
    POD_TEMPLATE,
    REFERENCE,
    REMOVED,
    VOYAGE,
    edited,
)
from tests.support.cluster.api import INDEXES
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
CRD = ROOT / "charts/memory-index/crds/memoryindexes.yaml"
COLLECTION = f"{INDEXES}/namespaces/default/memoryindexes"
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))

pytestmark = pytest.mark.cluster
_CONFLICTS = 20  # in a row, after which something else is wrong


class RefusedError(Exception):
    """The API server's message about an object that it does not store."""


class Api:
    """What a user can do with an object: try it, store it, read the answer.

    Objects are sent without a kubectl for each, whose start takes many times as long as the request.
    """

    def __init__(self, cluster: Cluster, client: httpx.Client) -> None:
        self._cluster = cluster
        self._client = client

    def try_object(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The object as the API server would store it."""
        return self._send(body, dryRun="All")

    def store(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The object as the API server stored it."""
        return self._send(body)

    def refusal(self, body: Mapping[str, Any]) -> str:
        """What the API server says against the object."""
        with pytest.raises(RefusedError) as refused:
            self.try_object(body)
        return str(refused.value)

    def remove(self) -> None:
        """Delete the object that tests store, if it exists, and wait until it is gone."""
        path = f"{COLLECTION}/good"
        self._client.delete(path)
        eventually(lambda: self._client.get(path).status_code, lambda status: status == 404, what="gone")

    def kubectl(self, *args: str) -> str:
        """Any kubectl command."""
        return self._cluster.kubectl(*args)

    def _send(self, body: Mapping[str, Any], **options: str) -> dict[str, Any]:
        """Create the object, or replace the stored one of its name; unknown fields are refused.

        The operator may write the stored object's status in the same moment, so a conflict of versions is tried again.
        """
        answer = self._send_once(body, **options)
        for _ in range(_CONFLICTS):
            if answer.status_code != httpx.codes.CONFLICT:
                break
            answer = self._send_once(body, **options)
        if answer.is_error:
            raise RefusedError(answer.json()["message"])
        return dict(answer.json())

    def _send_once(self, body: Mapping[str, Any], **options: str) -> httpx.Response:
        options |= {"fieldValidation": "Strict"}
        path = f"{COLLECTION}/{body['metadata']['name']}"
        found = self._client.get(path)
        if found.status_code == httpx.codes.NOT_FOUND:
            return self._client.post(COLLECTION, json=body, params=options)
        version = {"resourceVersion": found.json()["metadata"]["resourceVersion"]}
        return self._client.put(path, json={**body, "metadata": {**body["metadata"], **version}}, params=options)


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[httpx.Client]:
    """A client of the API server, through `kubectl proxy`."""
    command = cluster.kubectl_command("proxy", "--port=0")
    with subprocess.Popen(command, env=cluster.environment, stdout=subprocess.PIPE, text=True) as proxy:
        try:
            assert proxy.stdout is not None
            address = proxy.stdout.readline().split()[-1]
            with httpx.Client(base_url=f"http://{address}", timeout=30) as opened:
                yield opened
        finally:
            proxy.terminate()


@pytest.fixture(scope="module")
def api(cluster: Cluster, client: httpx.Client) -> Api:
    """The shared cluster with the resource definition of this checkout."""
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRD))
    cluster.kubectl("wait", "--for=condition=Established", "crd/memoryindexes.memory-index.dev", "--timeout=60s")
    return Api(cluster, client)


@pytest.fixture
def stored(api: Api, request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """The good object of the test's case, truly stored (suspended)."""
    case: Case = request.getfixturevalue("case")
    body = edited(case.before)
    api.store(body)
    yield body
    api.remove()


def parameters(cases: tuple[Case, ...]) -> list[Any]:
    """The cases under readable test names."""
    return [pytest.param(case, id=case.name.replace(" ", "-")) for case in cases]


@pytest.mark.parametrize("case", parameters(MALFORMED))
def test_malformed_object_is_refused_with_the_remedy(api: Api, case: Case) -> None:
    assert case.says in api.refusal(edited(case.edits))


@pytest.mark.parametrize("case", parameters(FORBIDDEN_CHANGES))
def test_a_change_that_would_make_the_vectors_useless_is_refused(api: Api, case: Case, stored: dict[str, Any]) -> None:
    assert case.says in api.refusal(edited(case.edits, edited(case.before)))


@pytest.mark.parametrize(
    "edits",
    [
        pytest.param({}, id="minimal"),
        pytest.param(CUSTOM, id="custom-model"),
        pytest.param(FETCHED, id="fetched-model"),
        pytest.param(VOYAGE, id="voyage"),
        pytest.param(EXTERNAL, id="external-embedder"),
        pytest.param({**PLAIN, "spec.database.name": "postgres"}, id="database-of-a-hosted-postgres"),
        pytest.param({"spec.embedding": {"model": "Qwen3-Embedding-0.6B", "dimensions": 512}}, id="cut-vectors"),
        pytest.param(REFERENCE, id="embedder-of-another-object"),
        pytest.param({"spec.embedder.minReplicas": 0}, id="scale-to-zero"),
        pytest.param({"spec.swap.gate": {"configMap": {"name": "queries"}}}, id="gate"),
        pytest.param({"spec.embedder.tolerations": [{"operator": "Exists"}]}, id="tolerate-everything"),
        pytest.param({"spec.database.extension.minimumVersion": "0.10"}, id="later-pgvector"),
        pytest.param(CALLERS, id="key-and-callers"),
        pytest.param(POD_TEMPLATE, id="pod-template"),
        pytest.param({**EXTERNAL, "spec.embedder.podTemplate": {"labels": {"team": "a"}}}, id="template-of-workers"),
    ],
)
def test_good_object_is_accepted(api: Api, edits: Mapping[str, Any]) -> None:
    """No rule is so strict that it refuses what the design allows."""
    assert api.try_object(edited(edits))["spec"]["embedding"]["model"]


def test_dimensions_may_change_together_with_the_model(api: Api) -> None:
    api.store(GOOD)
    try:
        changed = edited({"spec.embedding": {"model": "all-MiniLM-L6-v2", "dimensions": 384}})
        assert api.try_object(changed)["spec"]["embedding"]["dimensions"] == 384
    finally:
        api.remove()


@pytest.mark.finding("D5")
def test_a_new_object_says_that_nobody_has_seen_it(api: Api) -> None:
    """Without it kstatus would take an object without a status for finished."""
    assert api.try_object(GOOD)["status"] == {"observedGeneration": -1}


def test_scaling_beyond_the_maximum_is_refused(api: Api) -> None:
    """`kubectl scale` moves the floor, and says what to do when it would pass the ceiling."""
    api.store(edited({"spec.embedder.maxReplicas": 2}))
    try:
        api.kubectl("scale", "memoryindex/good", "-n", "default", "--replicas=2")
        with pytest.raises(CommandError, match="raise maxReplicas first"):
            api.kubectl("scale", "memoryindex/good", "-n", "default", "--replicas=3")
    finally:
        api.remove()


def test_api_server_fills_in_the_documented_defaults(api: Api) -> None:
    spec = api.try_object(edited({"spec.suspend": REMOVED, "spec.database.credentials": REMOVED}))["spec"]
    assert (spec["suspend"], spec["deletionPolicy"], spec["graph"]["enabled"]) == (False, "Retain", False)
    assert (spec["database"]["table"], spec["database"]["credentials"]) == ("memories", {"key": "uri"})
    assert spec["database"]["extension"] == {"management": "Database", "minimumVersion": "0.8.4"}
    assert spec["embedding"]["queryEgress"] == "Denied"
    assert spec["index"] == {"m": 24, "efConstruction": 128}
    assert spec["backfill"] == {"parallelism": 1, "maxAttempts": 5}
    assert (spec["embedder"]["minReplicas"], spec["embedder"]["maxReplicas"], spec["embedder"]["gpuLayers"]) == (
        1,
        1,
        -1,
    )


def test_unknown_resource_names_pass_unchanged(api: Api) -> None:
    """A GPU slice or a memory budget of the user's own reaches the pod as it was written."""
    resources = {"requests": {"cpu": "250m"}, "limits": {"nvidia.com/gpu": 1, "example.com/gpu-memory-mib": "1600"}}
    body = edited({"spec.embedder.resources": resources, "spec.backfill.resources": resources})
    spec = api.try_object(body)["spec"]
    assert spec["embedder"]["resources"] == resources
    assert spec["backfill"]["resources"] == resources


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_example_is_accepted(api: Api, path: Path) -> None:
    """Each MemoryIndex under examples/ is a good object as it stands."""
    objects = [body for body in yaml.safe_load_all(path.read_text()) if body["kind"] == "MemoryIndex"]
    assert objects
    for body in objects:
        # The example's own namespace need not exist where it is only tried.
        assert (
            api.try_object({**body, "metadata": {**body["metadata"], "namespace": "default"}})["kind"] == "MemoryIndex"
        )


def test_the_columns_are_the_documented_ones(api: Api) -> None:
    api.store(GOOD)
    try:
        heading = api.kubectl("get", "mi", "good", "-n", "default", "-o", "wide").splitlines()[0].split()
    finally:
        api.remove()
    assert heading == ["NAME", "READY", "MODEL", "EMBEDDED", "PENDING", "EMBEDDER", "AGE", "REASON", "MESSAGE"]
