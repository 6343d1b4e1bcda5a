"""The values for the chart in every example that we ship give the operator no more rights than it needs."""

import re

from tests.unit.repository.test_layout import ROOT, tracked

PLACES = ("docs", "examples", "terraform", "charts/memory-index/ci")
NAMESPACES = re.compile(r"^ *databaseNamespaces *[:=] *\[", re.MULTILINE)
SECRETS = re.compile(r"^[^#\n]*\bauthoritySecrets *[:=] *\[[^\]]", re.MULTILINE)


def test_an_example_that_names_a_databases_namespace_names_the_secrets_that_may_be_read_there() -> None:
    """Without `cnpg.authoritySecrets` the operator's Role may read every Secret of that namespace."""
    texts = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in tracked("*.md", "*.yaml", "*.tf")
        if path.relative_to(ROOT).as_posix().startswith(PLACES)
    }
    found = {name: len(NAMESPACES.findall(text)) for name, text in texts.items() if NAMESPACES.search(text)}
    assert {"docs/install.md", "docs/gitops/argocd.yaml", "docs/gitops/flux.yaml"} <= found.keys()
    assert "terraform/stacks/memory-index/main.tf" in found
    assert {name: len(SECRETS.findall(texts[name])) for name in found} == found
