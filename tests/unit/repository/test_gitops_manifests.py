"""The manifests for Flux and Argo CD that docs/gitops ships agree with the chart and with the health rules."""

import json
import re
from typing import Any

import pytest

from tests.support.yaml_text import read_documents, read_yaml
from tests.unit.repository.test_layout import ROOT

SHIPPED = ROOT / "docs" / "gitops"


def of_kind(file: str, kind: str) -> list[dict[str, Any]]:
    return [body for body in read_documents((SHIPPED / file).read_text()) if body["kind"] == kind]


def test_flux_waits_by_the_shipped_health_rules() -> None:
    """The Kustomization carries the rules that are tested against every situation."""
    (kustomization,) = of_kind("flux.yaml", "Kustomization")
    rules = read_yaml((SHIPPED / "flux-health.yaml").read_text())
    assert {name: kustomization["spec"][name] for name in rules} == rules


def test_flux_waits_for_nothing_that_the_file_does_not_bring() -> None:
    """A Kustomization that depends on one that does not exist is never applied."""
    (kustomization,) = of_kind("flux.yaml", "Kustomization")
    (release,) = of_kind("flux.yaml", "HelmRelease")
    assert "dependsOn" not in kustomization["spec"]
    for source in (kustomization["spec"]["sourceRef"], release["spec"]["chartRef"]):
        (brought,) = of_kind("flux.yaml", source["kind"])
        assert source["name"] == brought["metadata"]["name"]


def test_flux_applies_the_definition_before_each_upgrade_and_rolls_back() -> None:
    """Helm by itself would leave a former definition in place."""
    (release,) = of_kind("flux.yaml", "HelmRelease")
    assert release["spec"]["install"]["crds"] == release["spec"]["upgrade"]["crds"] == "CreateReplace"
    assert release["spec"]["upgrade"]["remediation"]["strategy"] == "rollback"


def test_argo_cd_applies_the_operator_first_and_on_the_server() -> None:
    """On the server, fields that others have set stay theirs."""
    operator, indexes = of_kind("argocd.yaml", "Application")
    waves = [app["metadata"]["annotations"]["argocd.argoproj.io/sync-wave"] for app in (operator, indexes)]
    assert waves == ["0", "1"]
    assert all("ServerSideApply=true" in app["spec"]["syncPolicy"]["syncOptions"] for app in (operator, indexes))


def test_argo_cd_neither_prunes_the_definition_nor_deletes_it_with_the_operator() -> None:
    """It renders crds/ as any other folder of a chart, and with the definition every MemoryIndex would go."""
    definition = read_yaml((ROOT / "charts" / "memory-index" / "crds" / "memoryindexes.yaml").read_text())
    options = definition["metadata"]["annotations"]["argocd.argoproj.io/sync-options"]
    assert set(options.split(",")) == {"Prune=false", "Delete=false"}


def values_of(tool: str) -> dict[str, Any]:
    """Return the values of the operator's chart that a file gives."""
    if tool == "flux":
        values: dict[str, Any] = of_kind("flux.yaml", "HelmRelease")[0]["spec"]["values"]
    else:
        values = of_kind("argocd.yaml", "Application")[0]["spec"]["source"]["helm"]["valuesObject"]
    return values


@pytest.mark.parametrize("tool", ["flux", "argocd"])
def test_the_namespaces_that_the_charts_roles_go_into_are_brought_before_the_operator_and_never_pruned(
    tool: str,
) -> None:
    """Neither the tools nor helm make any but the release's, and a pruned one would take the databases along."""
    namespaces = {
        body["metadata"]["name"]: body["metadata"]["annotations"] for body in of_kind(f"{tool}.yaml", "Namespace")
    }
    values = values_of(tool)
    assert set(namespaces) == {*values["watchNamespaces"], *values["databaseNamespaces"]}
    for annotations in namespaces.values():
        if tool == "flux":  # which applies namespaces before everything else
            assert annotations == {"kustomize.toolkit.fluxcd.io/prune": "disabled"}
        else:
            assert annotations["argocd.argoproj.io/sync-options"] == "Prune=false,Delete=false"
            assert int(annotations["argocd.argoproj.io/sync-wave"]) < 0


@pytest.mark.parametrize("tool", ["flux", "argocd"])
def test_the_lines_for_a_registry_with_a_login_are_right_once_their_comment_marks_are_taken_away(tool: str) -> None:
    """A pod that starts before it may pull has the installation fail."""
    text = (SHIPPED / f"{tool}.yaml").read_text()
    objects = read_documents(re.sub(r"# (?=secretRef:|global:)", "", text))
    changed = [body["spec"] for body, shipped in zip(objects, read_documents(text), strict=True) if body != shipped]
    named = {"global": {"imagePullSecrets": [{"name": "registry"}]}}
    if tool == "flux":
        source, release = changed
        assert source["secretRef"] == {"name": "registry"}
        assert release["values"] == values_of(tool) | named
    else:
        (operator,) = changed
        assert operator["source"]["helm"]["valuesObject"] == values_of(tool) | named


def test_the_page_removes_the_objects_waits_for_their_end_and_only_then_removes_the_operator() -> None:
    """Without the operator nobody takes their finalizer off, and they and their namespace stay for ever."""
    section = (ROOT / "docs" / "gitops.md").read_text().partition("\n## Removing\n")[2].partition("\n## ")[0]
    _, objects, wait, operator = re.split(r"^[0-9]\. ", section, flags=re.MULTILINE)
    (kustomization,) = of_kind("flux.yaml", "Kustomization")
    (release,) = of_kind("flux.yaml", "HelmRelease")
    applied = [app["metadata"]["name"] for app in of_kind("argocd.yaml", "Application")]
    assert f"Kustomization `{kustomization['metadata']['name']}`" in objects
    assert "`kubectl get memoryindexes -A`" in wait
    assert f"HelmRelease `{release['metadata']['name']}`" in operator
    assert f"`argocd app delete {applied[1]}`" in objects
    assert f"`argocd app delete {applied[0]}`" in operator


def test_an_installation_that_fails_is_tried_again() -> None:
    """A registry or a webhook may not answer at the first attempt."""
    (release,) = of_kind("flux.yaml", "HelmRelease")
    assert release["spec"]["install"]["remediation"]["retries"] >= 1
    assert all(app["spec"]["syncPolicy"]["retry"]["limit"] >= 1 for app in of_kind("argocd.yaml", "Application"))


@pytest.mark.parametrize("tool", ["flux", "argocd"])
def test_the_values_are_values_of_the_chart(tool: str) -> None:
    """A misspelt one would be refused by the chart's schema at the first synchronisation."""
    values = values_of(tool)
    schema = json.loads((ROOT / "charts" / "memory-index" / "values.schema.json").read_text())
    assert values.keys() <= schema["properties"].keys()
