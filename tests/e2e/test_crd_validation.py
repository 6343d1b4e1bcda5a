"""The API server itself, without a webhook, refuses each malformed MemoryIndex and says what to do."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.cluster import Cluster
from devcluster.errors import CommandError
from memory_bench.operator.waiting import eventually
from tests.e2e.crd_cases import FORBIDDEN_CHANGES, MALFORMED, Case
from tests.e2e.crd_objects import CALLERS, CUSTOM, EXTERNAL, FETCHED, GOOD, POD_TEMPLATE, REMOVED, VOYAGE, edited

ROOT = Path(__file__).parents[2]
CRD = ROOT / "charts/memory-index/crds/memoryindexes.yaml"
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))

pytestmark = pytest.mark.cluster


class Api:
    """What a user can do with kubectl: try an object, store one, read the answer."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def try_object(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The object as the API server would store it."""
        return self._apply(body, "--dry-run=server")

    def store(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The object as the API server stored it."""
        return self._apply(body)

    def refusal(self, body: Mapping[str, Any]) -> str:
        """What the API server says against the object."""
        with pytest.raises(CommandError) as refused:
            self.try_object(body)
        return refused.value.output

    def kubectl(self, *args: str) -> str:
        """Any other kubectl command."""
        return self._cluster.kubectl(*args)

    def _apply(self, body: Mapping[str, Any], *options: str) -> dict[str, Any]:
        answer = self._cluster.kubectl(
            "apply", "--validate=strict", *options, "-o", "json", "-f", "-", input=json.dumps(body)
        )
        return dict(json.loads(answer))


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Api:
    """The session's cluster with the resource definition of this checkout."""
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRD))
    established = "jsonpath={.status.conditions[?(@.type=='Established')].status}"
    eventually(
        lambda: cluster.kubectl("get", "crd/memoryindexes.memory-index.dev", "-o", established),
        lambda status: status.strip() == "True",
        what="the API server has established the resource",
        seconds=60,
    )
    return Api(cluster)


@pytest.fixture
def stored(api: Api, request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """The good object of the test's case, truly stored (suspended)."""
    case: Case = request.getfixturevalue("case")
    body = edited(case.before)
    api.store(body)
    yield body
    api.kubectl("delete", "memoryindex", "good", "-n", "default", "--ignore-not-found", "--wait=true", "--timeout=60s")


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


def test_table_covers_every_rule_of_the_schema() -> None:
    """Each CEL rule's message is expected by some case, so none can go without a test."""
    expected = [case.says for case in (*MALFORMED, *FORBIDDEN_CHANGES)]
    document = yaml.safe_load(CRD.read_text())
    unproven = [text for text in messages(document) if not any(fragment in text for fragment in expected)]
    allowed = {
        "no model profile has this name; use custom with pooling, maxTokens and source",
        "dimensions differ from what the model yields",
    }
    assert set(unproven) <= allowed


def messages(node: Any) -> Iterator[str]:
    """Every message of a CEL rule below a node of the schema."""
    if isinstance(node, dict):
        for rule in node.get("x-kubernetes-validations", ()):
            yield rule["message"]
        for child in node.values():
            yield from messages(child)
    elif isinstance(node, list):
        for child in node:
            yield from messages(child)


def test_dimensions_may_change_together_with_the_model(api: Api) -> None:
    api.store(GOOD)
    try:
        changed = edited({"spec.embedding": {"model": "all-MiniLM-L6-v2", "dimensions": 384}})
        assert api.try_object(changed)["spec"]["embedding"]["dimensions"] == 384
    finally:
        api.kubectl("delete", "memoryindex", "good", "-n", "default", "--wait=true", "--timeout=60s")


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
        api.kubectl("delete", "memoryindex", "good", "-n", "default", "--wait=true", "--timeout=60s")


def test_api_server_fills_in_the_documented_defaults(api: Api) -> None:
    spec = api.try_object(edited({"spec.suspend": REMOVED, "spec.database.credentials": REMOVED}))["spec"]
    assert (spec["suspend"], spec["deletionPolicy"], spec["graph"]["enabled"]) == (False, "Retain", False)
    assert (spec["database"]["table"], spec["database"]["credentials"]) == ("memories", {"key": "uri"})
    assert spec["database"]["extension"] == {"management": "Database", "minimumVersion": "0.8.4"}
    assert spec["embedding"]["provider"] == "Local"
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


def test_kubectl_explain_describes_every_field(api: Api) -> None:
    """The page that a newcomer opens first says what the part is, and something about each field of it."""
    page = api.kubectl("explain", "memoryindex.spec.embedding")
    assert "a second column is filled and" in page
    assert "<no description>" not in page


def test_the_columns_are_the_documented_ones(api: Api) -> None:
    api.store(GOOD)
    try:
        heading = api.kubectl("get", "mi", "good", "-n", "default", "-o", "wide").splitlines()[0].split()
    finally:
        api.kubectl("delete", "memoryindex", "good", "-n", "default", "--wait=true", "--timeout=60s")
    assert heading == ["NAME", "READY", "MODEL", "EMBEDDED", "PENDING", "EMBEDDER", "AGE", "REASON", "MESSAGE"]
