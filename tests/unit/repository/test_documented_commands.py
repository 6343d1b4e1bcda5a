"""What the documents tell a reader to type exists."""

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from docs.makers.references import commands as commands_page
from tests.support.documents import ROOT, commands, divided, documented, require_known

PROGRAMS = {name: get_command(app) for name, app in commands_page.programs().items()}
CASES = [pytest.param(document, command, id=f"{document.name}: {command[:60]}") for document, command in documented()]
INSTALLING = sorted({document for document, command in documented() if command.startswith("helm install ")})


@pytest.mark.parametrize(("document", "command"), [case for case in CASES if "pip install" in case.values[1]])
def test_our_packages_are_installed_from_the_checkout(document: Path, command: str) -> None:
    """None is published, so another package of the name would be installed, or nothing."""
    names = {"memory-recall", "memory-operator", "memory-embedder"}
    assert not names & set(re.findall(r"[\w-]+", command)), document.name
    folders = [word.split("[")[0] for word in shlex.split(command) if word.startswith("./")]
    assert all((ROOT / folder / "pyproject.toml").exists() for folder in folders)


@pytest.mark.parametrize(
    ("document", "command"), [case for case in CASES if "memory-index.dev/allowed-namespaces=" in case.values[1]]
)
def test_no_documented_command_withdraws_the_consent_of_other_namespaces(document: Path, command: str) -> None:
    """The annotation of a shared Cluster is a list; a command that overwrites it writes the whole of it."""
    written = command.partition("memory-index.dev/allowed-namespaces=")[2].split()[0].strip('"')
    assert "--overwrite" not in command or written == "$ALLOWED" or "," in written, document.name


def test_no_documented_command_withdraws_what_was_permitted_to_others() -> None:
    """A list that `--set` gives takes the place of the whole list, and the workers of hosts that it lacks stop."""
    assert [command for _, command in documented() if re.search(r"--set.*\bpermitted\.", command)] == []


@pytest.mark.parametrize(("document", "command"), [case for case in CASES if "helm " in case.values[1]])
def test_no_documented_command_applies_a_former_definition_or_what_is_none(document: Path, command: str) -> None:
    """`helm pull --untar` fails where a folder of an older chart lies, which the next lines would then apply.

    Of a chart in a registry `helm show` also prints where it was pulled from, which kubectl refuses.
    """
    assert "--untar" not in command, document.name
    assert not ("helm show" in command and "oci://" in command), document.name


@pytest.mark.parametrize("document", INSTALLING, ids=lambda page: page.name)
@pytest.mark.finding("operator F11")
def test_a_page_that_installs_with_helm_says_that_a_failed_release_is_uninstalled_before_the_next_attempt(
    document: Path,
) -> None:
    """Helm refuses a name that is in use, and a failed release uses its name."""
    after_failure = re.compile(r"`helm install`\s+fail.*?`helm\s+uninstall\s[^`]*`\s+first", re.DOTALL)
    assert after_failure.search(document.read_text())


def test_an_installation_from_a_registry_makes_the_namespaces_and_their_pull_secrets_first() -> None:
    """A pod that starts before it may pull has the installation wait in vain."""
    lines = [" ".join(line.split()) for line in commands(ROOT / "docs" / "install.md")]
    (install,) = (place for place, line in enumerate(lines) if line.startswith("helm install memory-index oci://"))
    for namespace in ("memory-index-system", "claude-memory"):
        made = lines.index(f"kubectl create namespace {namespace}")
        secret = f"kubectl -n {namespace} create secret docker-registry registry "
        (given,) = (place for place, line in enumerate(lines) if line.startswith(secret))
        assert made < given < install


def test_documented_commands_use_date_and_sed_as_macos_has_them_too() -> None:
    """GNU's own options fail there, and a proof whose value is then empty may pass."""
    gnu = re.compile(r"\bdate --|\bsed\b.*\\\|")
    assert [command for _, command in documented() if gnu.search(command)] == []


def make_targets() -> set[str]:
    """Targets that the Makefile defines."""
    return set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize(("document", "command"), [case for case in CASES if re.search(r"\bmake\b", case.values[1])])
def test_documented_make_targets_exist(document: Path, command: str) -> None:
    """A reader who types a documented `make` line meets a target of that name."""
    words = shlex.split(command, comments=True)
    targets = [w for w in words[words.index("make") + 1 :] if "=" not in w and not w.startswith("-")]
    assert set(targets) <= make_targets(), document.name


@pytest.mark.parametrize(("document", "command"), [case for case in CASES if divided(case.values[1], PROGRAMS)])
def test_documented_programs_know_their_options(document: Path, command: str) -> None:
    """Every sub-command and long option that a document uses is one of the program's own."""
    found = divided(command, PROGRAMS)
    assert found is not None
    name, words = found
    require_known(name, words, PROGRAMS[name])
