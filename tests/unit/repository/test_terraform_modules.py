"""The Terraform modules, the Terragrunt unit and their pages fit one another; MEMORY_TEST_UPDATE=1 rewrites the pages.

OpenTofu checks and applies them in tests/delivery, which takes longer.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.delivery.terraform.terragrunt import OUTPUT, Unit, named, parse
from tests.support.documents import commands
from tests.unit.repository.test_layout import ROOT, tracked

TERRAFORM = ROOT / "terraform"
MODULES = sorted((TERRAFORM / "modules").iterdir())
STACK = TERRAFORM / "stacks" / "memory-index"
PLACES = [*MODULES, STACK]
META_ARGUMENTS = {"source", "depends_on"}


def blocks(directory: Path, kind: str) -> dict[str, dict[str, Any]]:
    """The blocks of one kind in the files of a module, by label."""
    return {
        name: body for path in sorted(directory.glob("*.tf")) for name, body in named(parse(path).get(kind, [])).items()
    }


def required(directory: Path) -> set[str]:
    """Names of the variables of a module that have no default."""
    return {name for name, variable in blocks(directory, "variable").items() if "default" not in variable}


@pytest.mark.parametrize("path", tracked("*.tf", "*.hcl"), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_file_is_hcl(path: Path) -> None:
    """A file that cannot be parsed would fail in the user's hands."""
    assert parse(path)


@pytest.mark.parametrize("place", PLACES, ids=lambda path: path.name)
def test_every_variable_and_output_says_what_it_is(place: Path) -> None:
    """A variable has a type, a description, and takes null only where null is its default."""
    variables = blocks(place, "variable")
    assert variables
    for name, variable in variables.items():
        assert {"type", "description"} <= set(variable), name
        assert variable.get("nullable") is False, name
    assert [name for name, output in blocks(place, "output").items() if "description" not in output] == []


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_a_module_requires_its_providers_and_configures_none(module: Path) -> None:
    """The root module configures providers; a module that did could be used only once."""
    (settings,) = parse(module / "versions.tf")["terraform"]
    kinds = {kind for path in module.glob("*.tf") for block in parse(path).get("resource", []) for kind in block}
    assert kinds
    assert {kind.split("_")[0] for kind in kinds} == set(settings["required_providers"][0])
    assert settings["required_version"]
    assert blocks(module, "provider") == {}


@pytest.mark.parametrize("place", PLACES, ids=lambda path: path.name)
def test_an_apply_takes_back_what_was_changed_beside_terraform(place: Path) -> None:
    """The API server refuses to apply a field that kubectl has changed since, unless conflicts are forced."""
    resources = [block for path in place.glob("*.tf") for block in parse(path).get("resource", [])]
    manifests = [body for block in resources for body in block.get("kubectl_manifest", {}).values()]
    assert manifests
    assert {(body.get("server_side_apply"), body.get("force_conflicts")) for body in manifests} == {(True, True)}


def test_the_stack_passes_to_each_module_what_it_takes() -> None:
    """Every argument is a variable of the module, and no variable without a default is left out."""
    calls = blocks(STACK, "module")
    assert {Path(call["source"]).name for call in calls.values()} == {module.name for module in MODULES}
    for call in calls.values():
        module = STACK / call["source"]
        passed = set(call) - META_ARGUMENTS
        assert required(module) <= passed <= set(blocks(module, "variable"))


@pytest.mark.parametrize("place", [STACK / "main.tf", ROOT / "docs" / "install.md"], ids=lambda path: path.name)
def test_any_password_makes_a_connection_string(place: Path) -> None:
    """External Secrets percent-encodes what it writes into the URI: an `@` or `/` would end the password."""
    written = re.findall(r"{{ *\.(\w+)([^}]*)}}", place.read_text(encoding="utf-8"))
    assert written == [("username", " | urlquery "), ("password", " | urlquery ")]


def test_the_page_names_the_address_that_the_unit_gives() -> None:
    """The stack of the API cannot read it from the unit, which depends on that stack."""
    assert "claude-memory" in Unit(STACK, ROOT).dependencies()
    name = blocks(STACK, "module")["claude_memory"]["name"]
    (namespace,) = [local["namespace"] for local in parse(STACK / "main.tf")["locals"]]
    assert f"`http://{name}-embedder.{namespace}.svc:8080`" in (ROOT / "docs" / "install.md").read_text(
        encoding="utf-8"
    )


def test_the_units_inputs_are_the_stacks_variables() -> None:
    """Terragrunt passes inputs by the environment, where OpenTofu ignores variables that it does not know."""
    inputs = set(parse(STACK / "terragrunt.hcl")["inputs"])
    assert required(STACK) <= inputs <= set(blocks(STACK, "variable"))


def test_the_unit_can_be_planned_before_its_dependencies_were_applied() -> None:
    """Each output that an input uses has a mock output, which a plan may use and an apply may not."""
    unit = Unit(STACK, ROOT)
    used = set(OUTPUT.findall((STACK / "terragrunt.hcl").read_text(encoding="utf-8")))
    mocked = {(name, output) for name, block in unit.dependencies().items() for output in block.get("mock_outputs", {})}
    assert used
    assert used == mocked
    assert unit.inputs("plan", {})["database_cluster"] == {"name": "pg-cluster", "namespace": "dbaas"}
    with pytest.raises(AssertionError, match="never applied"):
        unit.inputs("apply", {})


def test_an_upgrade_leaves_the_new_modules_and_nothing_of_the_former(tmp_path: Path) -> None:
    """The documented commands replace the copied chart and modules, and show how the unit differs from ours."""
    copies = {name: tmp_path / name for name in ("charts/memory-index", *(f"modules/{one.name}" for one in MODULES))}
    for copy in copies.values():
        copy.mkdir(parents=True)
        (copy / "former.tf").touch()
    unit = tmp_path / "stacks" / "memory-index"
    shutil.copytree(STACK, unit)
    (unit / "main.tf").write_text("# the user's own\n", encoding="utf-8")
    lines = [line for line in commands(ROOT / "docs" / "upgrade.md") if "$INFRA" in line]
    done = subprocess.run(
        ["sh", "-c", "\n".join(lines)], cwd=ROOT, env={**os.environ, "INFRA": str(tmp_path)}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    assert "diff -r terraform/stacks/memory-index/main.tf" in done.stdout
    for name, copy in copies.items():
        ours = ROOT / name if name.startswith("charts") else TERRAFORM / name
        assert sorted(path.name for path in copy.iterdir()) == sorted(path.name for path in ours.iterdir()), name


def shown(default: object) -> str:
    """A default as the table shows it."""
    return "required" if default is None else f"`{json.dumps(default)}`"


def tables(module: Path) -> dict[str, str]:
    """The tables of inputs and outputs of a module in Markdown."""
    inputs = [
        f"| `{name}` | `{variable['type'].removeprefix('${').removesuffix('}')}` | {shown(variable.get('default'))} |"
        f" {variable['description']} |"
        for name, variable in blocks(module, "variable").items()
    ]
    outputs = [f"| `{name}` | {output['description']} |" for name, output in blocks(module, "output").items()]
    return {
        "inputs": "\n".join(["| Name | Type | Default | Description |", "|---|---|---|---|", *inputs]),
        "outputs": "\n".join(["| Name | Description |", "|---|---|", *outputs]),
    }


@pytest.mark.parametrize("kind", ["inputs", "outputs"])
@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_a_modules_readme_lists_what_it_takes_and_gives(module: Path, kind: str) -> None:
    """The tables are generated from the module, so that they can neither lack nor invent an input."""
    page = module / "README.md"
    text, table = page.read_text(encoding="utf-8"), tables(module)[kind]
    found = re.search(rf"<!-- {kind} -->\n(.*?)<!-- end of {kind} -->", text, re.DOTALL)
    assert found, kind
    if os.environ.get("MEMORY_TEST_UPDATE"):
        page.write_text(f"{text[: found.start(1)]}{table}\n{text[found.end(1) :]}", encoding="utf-8")
    else:
        assert found[1] == f"{table}\n"
