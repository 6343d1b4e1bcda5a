"""The resource definition: complete, with a description of each field, and equal to the code."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from memory_operator.api.spec import Spec
from memory_recall.embedding.profiles import PROFILES
from memory_recall.hnsw.definition import DEFAULT_EF_CONSTRUCTION, DEFAULT_M

ROOT = Path(__file__).parents[3]

Schema = dict[str, Any]


@pytest.fixture
def version(resource_definition: Schema) -> Schema:
    """The one version of the resource."""
    (only,) = resource_definition["spec"]["versions"]
    return dict(only)


@pytest.fixture
def spec_schema(version: Schema) -> Schema:
    """The schema of spec."""
    return dict(version["schema"]["openAPIV3Schema"]["properties"]["spec"])


def fields(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every field below a schema, with its dotted path."""
    for name, inner in schema.get("properties", {}).items():
        yield f"{path}{name}", inner
        yield from fields(inner, f"{path}{name}.")
        yield from fields(inner.get("items", {}), f"{path}{name}[].")


def test_every_field_is_described(version: Schema) -> None:
    undescribed = [
        path
        for path, inner in fields(version["schema"]["openAPIV3Schema"])
        if path != "metadata" and not inner.get("description", "").endswith(".")
    ]
    assert not undescribed


@pytest.mark.finding("operator F11")
def test_a_client_side_apply_can_write_the_definition_too(resource_definition: Schema) -> None:
    """It keeps what it applied in an annotation; an object's annotations have at most 256 KiB together."""
    assert len(json.dumps(resource_definition, ensure_ascii=False).encode()) < 256 << 10


def test_resource_is_named_as_designed(resource_definition: Schema, version: Schema) -> None:
    names = resource_definition["spec"]["names"]
    assert (names["kind"], names["plural"], names["shortNames"]) == ("MemoryIndex", "memoryindexes", ["mi"])
    assert (resource_definition["spec"]["group"], version["name"]) == ("memory-index.dev", "v1alpha1")
    assert version["subresources"].keys() == {"status", "scale"}


def test_dimensions_of_known_models_are_the_profiles(spec_schema: Schema) -> None:
    """The validation rule names the same dimensions as the library's model profiles."""
    rules = [rule["rule"] for rule in spec_schema["properties"]["embedding"]["x-kubernetes-validations"]]
    (rule,) = [text for text in rules if ": 1024" in text]
    stated = {name: int(number) for name, number in re.findall(r"'([^']+)': ([0-9]+)", rule)}
    assert stated == {name: profile.dimensions for name, profile in PROFILES.items()}


def test_the_database_postgres_is_refused_of_a_cluster_alone(spec_schema: Schema) -> None:
    """The one database of a Supabase project is called postgres; without a Cluster nobody has to manage it."""
    database = spec_schema["properties"]["database"]
    everywhere = {rule["rule"] for rule in database["properties"]["name"]["x-kubernetes-validations"]}
    beside_the_cluster = {rule["rule"] for rule in database["x-kubernetes-validations"]}
    assert "!(self in ['template0', 'template1'])" in everywhere
    assert not any("'postgres'" in rule for rule in everywhere)
    assert "!has(self.cluster) || self.name != 'postgres'" in beside_the_cluster


def defaulted(schema: Schema, value: Any) -> Any:
    """A value as the API server completes it with the schema's defaults."""
    if schema.get("type") != "object" or not isinstance(value, dict):
        return value
    completed = dict(value)
    for name, inner in schema.get("properties", {}).items():
        if name not in completed and "default" in inner:
            completed[name] = inner["default"]
        if name in completed:
            completed[name] = defaulted(inner, completed[name])
    return completed


def test_the_operator_has_the_same_defaults_as_the_definition(spec_schema: Schema) -> None:
    """An object that was written before a field existed is read as a new one."""
    bare: Schema = {"database": {"name": "memory"}, "embedding": {"model": "all-MiniLM-L6-v2"}}
    assert Spec.model_validate(bare) == Spec.model_validate(defaulted(spec_schema, bare))


def test_the_definition_builds_the_index_with_the_defaults_of_the_library() -> None:
    """An index of the operator and one of the command `memory` are built alike."""
    index = Spec.model_validate({"database": {"name": "memory"}, "embedding": {"model": "all-MiniLM-L6-v2"}}).index
    assert (index.m, index.ef_construction) == (DEFAULT_M, DEFAULT_EF_CONSTRUCTION)


def sections(model: type[BaseModel], path: str = "") -> Iterator[str]:
    """Dotted names, as in the API, of all that a model of the operator reads."""
    for name, info in model.model_fields.items():
        alias = f"{path}{info.alias or name}"
        yield alias
        for part in (info.annotation, *get_args(info.annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from sections(part, f"{alias}.")


def test_operator_reads_only_fields_that_exist(spec_schema: Schema) -> None:
    """A misspelt field would always be read as its default."""
    assert set(sections(Spec)) <= {path for path, _ in fields(spec_schema)}


def test_an_object_that_nobody_has_seen_is_not_taken_for_finished(version: Schema) -> None:
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
    assert status["default"] == {"observedGeneration": -1}
    assert status["properties"]["observedGeneration"]["minimum"] == -1


def test_conditions_are_merged_by_type(version: Schema) -> None:
    conditions = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["conditions"]
    assert (conditions["x-kubernetes-list-type"], conditions["x-kubernetes-list-map-keys"]) == ("map", ["type"])


def test_the_printer_columns_are_as_designed(version: Schema) -> None:
    columns = {column["name"]: column.get("priority", 0) for column in version["additionalPrinterColumns"]}
    assert columns == {
        "Ready": 0,
        "Model": 0,
        "Embedded": 0,
        "Pending": 0,
        "Embedder": 0,
        "Age": 0,
        "Reason": 1,
        "Message": 1,
    }
