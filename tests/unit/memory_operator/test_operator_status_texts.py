"""Status texts that must not outlive what they are about, and must not say more than is so."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memory_operator.api.conditions import MESSAGE_LIMIT
from memory_operator.api.reasons import Reason
from memory_operator.clients.kube import KubeError
from memory_operator.reconcile.facts import DeploymentFacts, EmbedderLoad, Problem, ReportedModel
from memory_operator.reconcile.status import LONGEST_TEXTS
from memory_operator.resources.events import Event, event_manifest, memory_index
from memory_recall.status import RowCounts
from tests.support.yaml_text import read_yaml
from tests.unit.memory_operator.conftest import FULL, HOSTED, Cluster, World
from tests.unit.memory_operator.test_operator_controller import Bench, bench
from tests.unit.memory_operator.test_operator_reporting import refuse_reads

__all__ = ["bench"]  # the fixture
EXTERNAL = {"gpuLayers": -1, "external": {"url": "http://e:80"}}
DEFINITION = Path(__file__).parents[3] / "charts" / "memory-index" / "crds" / "memoryindexes.yaml"


def embedder_section(world: World, facts: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """The status of an embedder whose former pods computed on a GPU."""
    written = {"embedder": {"device": "cuda", "gpuLayersOffloaded": 25}}
    index = world.index(**spec).model_copy(update={"status": written})
    status = world.decide(index, **facts).status
    assert status is not None
    section: dict[str, Any] = status["embedder"]
    return section


@pytest.mark.parametrize("spec", [{"embedder": EXTERNAL}, HOSTED], ids=["external", "hosted"])
def test_the_device_of_former_pods_is_not_told_of_an_embedder_that_somebody_else_runs(
    world: World, spec: dict[str, Any]
) -> None:
    section = embedder_section(world, {"external": ReportedModel("e")}, **spec)
    assert section.keys() & {"device", "gpuLayersOffloaded"} == set()


def test_the_last_device_is_kept_while_no_pod_tells_it_and_replaced_by_what_a_pod_tells(world: World) -> None:
    facts: dict[str, Any] = {"embedder": DeploymentFacts(replicas=0, ready=0, current=True)}
    assert embedder_section(world, facts)["gpuLayersOffloaded"] == 25
    section = embedder_section(world, {**facts, "loads": (EmbedderLoad("p", device="cpu"),)})
    assert section["device"] == "cpu"
    assert "gpuLayersOffloaded" not in section


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (RowCounts(total=100, embedded=90, sensitive=10), "Every row that may have a vector has one."),
        (RowCounts(total=100, quarantined=100), "Every row has a vector but those that were given up."),
        (RowCounts(total=199, pending=199), "The sync worker embeds the rows that were added or changed lately."),
    ],
    ids=["all embedded", "all given up", "pending"],
)
def test_ready_says_of_the_rows_what_is_so(world: World, rows: RowCounts, said: str) -> None:
    cluster = Cluster(world, world.manifest())
    cluster.database = replace(FULL, rows=rows)
    for _ in range(6):
        cluster.reconcile()
    ready = cluster.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("True", Reason.READY.code)
    assert ready["message"].startswith(said)
    assert ready["message"].endswith("The HNSW index is valid.")


async def test_a_request_is_acknowledged_of_an_object_that_is_invalid(bench: Bench) -> None:
    bench.api.index["metadata"]["annotations"] = {"memory-index.dev/reconcile-at": "2"}
    bench.api.index["status"]["lastHandledReconcileAt"] = "1"
    bench.api.index["spec"]["embedder"]["minReplicas"] = "many"
    await bench.reconcile()
    assert bench.api.condition("Ready")["reason"] == "InvalidSpec"
    assert bench.api.index["status"]["lastHandledReconcileAt"] == "2"


async def test_a_request_is_acknowledged_of_an_object_that_cannot_be_observed(bench: Bench) -> None:
    bench.api.index["metadata"]["annotations"] = {"memory-index.dev/reconcile-at": "2"}
    refuse_reads(bench, KubeError("reading Secret team/dsn", 403, "forbidden", refused=True))
    await bench.reconcile(3)
    assert bench.api.condition("Ready")["reason"] == "ObservationFailed"
    assert bench.api.index["status"]["lastHandledReconcileAt"] == "2"


HOSTILE = "18\N{SUPERSCRIPT TWO}\x1b]52;c;x\x07\n2026 level=error forged" + "9" * 5000


@pytest.mark.finding("security L1")
@pytest.mark.finding("security L2")
def test_no_text_of_a_server_is_too_long_for_its_field_or_holds_what_a_terminal_obeys(world: World) -> None:
    facts = replace(
        FULL, extension_version=HOSTILE, extension_available=HOSTILE, server_version=HOSTILE, schema_revision=HOSTILE,
        table_schema=HOSTILE, schema_differences=HOSTILE, rows=RowCounts(total=10**30, pending=10**30),
    )  # fmt: skip
    loads = (EmbedderLoad("p", device=HOSTILE, model=ReportedModel(HOSTILE, HOSTILE, HOSTILE)),)
    plan = world.decide(database=facts, loads=loads, external=Problem(Reason.MODEL_MISMATCH, HOSTILE))
    assert plan.status is not None
    texts = json.dumps(plan.status, ensure_ascii=False)
    assert not re.search(r"\\u00[01]|\\n|\x1b", texts)
    assert plan.status["rows"]["total"] == 2**63 - 1
    assert len(plan.status["database"]["extensionVersion"]) == 64
    assert all(len(one["message"]) <= MESSAGE_LIMIT for one in plan.status["conditions"])


@pytest.mark.finding("security L1")
def test_an_event_is_one_line_without_control_characters(world: World) -> None:
    manifest = event_manifest(memory_index(world.manifest()), Event("Warning", "JobFailed", HOSTILE), world.now)
    assert manifest["message"].isprintable()


@pytest.mark.finding("security L2")
def test_the_texts_of_the_status_are_as_long_as_their_fields_in_the_definition() -> None:
    (path,) = Path("charts/memory-index/crds").glob("*.yaml")
    (version,) = read_yaml(path.read_text(encoding="utf-8"))["spec"]["versions"]
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    sections = [field["properties"] for field in status.values() if field["type"] == "object"]
    texts = {name: field["maxLength"] for one in sections for name, field in one.items() if field["type"] == "string"}
    assert texts == LONGEST_TEXTS


def rule_messages(schema: Any) -> Iterator[str]:
    """Yield the messages of the rules of a definition that compare an object with its former state."""
    for value in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from rule_messages(value)
    if isinstance(schema, dict):
        rules = schema.get("x-kubernetes-validations") or ()
        yield from (rule["message"] for rule in rules if "oldSelf" in rule["rule"])


def bad_advice(remedy: str, messages: Sequence[str]) -> list[str]:
    """Return the immutable fields that a remedy names without the one way that leads to another value of them."""
    never = {name for text in messages for name in re.findall(r"^(database\.\w+) is immutable", text)}
    bound = {pair for text in messages for pair in re.findall(r"change ([\w.]+) only together with ([\w.]+)", text)}
    assert never == {"database.name", "database.table", "database.cluster"}
    assert bound == {("embedding.dimensions", "embedding.model")}
    ways = {**dict.fromkeys(never, "create a second MemoryIndex"), **{one: f"spec.{other}" for one, other in bound}}
    kinds = {name: name.removesuffix(".name").rpartition(".")[2] for name in ways}
    named = {name: rf"spec\.{name}\b|\banother {kind}\b" for name, kind in kinds.items()}
    return [name for name, way in ways.items() if re.search(named[name], remedy, re.IGNORECASE) and way not in remedy]


def test_no_remedy_tells_to_change_a_field_that_the_definition_makes_immutable() -> None:
    messages = list(rule_messages(read_yaml(DEFINITION.read_text(encoding="utf-8"))))
    assert {reason: found for reason in Reason if (found := bad_advice(reason.remedy, messages))} == {}
    assert bad_advice("Add it, or name another table.", messages) == ["database.table"]
    assert bad_advice("Create it, or correct spec.database.cluster.", messages) == ["database.cluster"]
    assert bad_advice("Set spec.embedding.dimensions to 384.", messages) == ["embedding.dimensions"]
