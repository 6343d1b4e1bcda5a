"""The SQL of the runbooks names no table or column by itself, because a MemoryIndex may have others, and keeps data."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from memory_recall.schema.claims_sql import TableClaim
from tests.delivery.pages import Page, read_page
from tests.support.documents import ROOT
from tests.support.yaml_text import read_yaml

PAGES = {
    path.stem: read_page(path)
    for path in sorted((ROOT / "docs" / "runbooks").glob("*.md"))
    if path.stem != "README" and "psql" in path.read_text()
}
OUR_NAMES = re.compile(r"\b(memories|is_sensitive|deleted_at|embedding|memory_embedding_failures)\b")
WRITTEN = re.compile(r'^([A-Z]+)="(?:UPDATE|INSERT|DELETE FROM|TRUNCATE)\b', re.MULTILINE)


@pytest.fixture(params=PAGES)
def page(request: pytest.FixtureRequest) -> Page:
    return PAGES[request.param]


def test_the_names_are_variables_of_the_page(page: Page) -> None:
    """With another table the page would report a failure after a success, or look at a table that is not ours."""
    assert not [line for block in page.blocks for line in block.splitlines() if OUR_NAMES.search(line)]


def test_a_statement_that_writes_is_rolled_back(page: Page) -> None:
    """It is run as superuser on the table of memories, and is there to be refused."""
    commands = "\n".join(page.blocks)
    written = WRITTEN.findall(commands)
    assert len(written) == len(re.findall(r"\b(?:UPDATE|INSERT|DELETE FROM|TRUNCATE)\b", commands))
    for variable in written:
        assert f'SQL "BEGIN; ${variable}; ROLLBACK"' in commands
        assert commands.count(f"${variable}") == 1


KUBECTL = """#!/bin/sh
case "$*" in *BEGIN*) ;; *count*) echo 0; exit 0 ;; *) echo pg-1; exit 0 ;; esac
printf '%s\\n' "$ANSWER"
exit "$STATUS"
"""


@pytest.mark.parametrize(
    ("answer", "status", "passes"),
    [
        ("UPDATE 0", 0, True),
        ("f\nUPDATE 1", 0, True),
        ("ERROR:  23514: new row violates a check constraint", 1, True),
        ("t\nUPDATE 1", 0, False),
        ("ERROR:  42P01: there is no such table", 1, False),
        ("the server does not answer", 2, False),
    ],
)
def test_a_restore_passes_only_if_the_rule_about_sensitive_rows_was_tried_and_held(
    tmp_path: Path, answer: str, status: int, passes: bool
) -> None:
    """A statement that failed for another reason, such as a name that SQL quotes, has tried nothing."""
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)
    restore = PAGES["restore"]
    (probing,) = (block for block in restore.blocks if "PROBE" in block)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "ANSWER": answer, "STATUS": str(status)}
    script = f"{restore.assignments}\n{probing}"
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], env=environment, capture_output=True, check=False)
    assert (done.returncode == 0) is passes, done.stderr


def restored_cluster() -> dict[str, Any]:
    """The specification of the Cluster that the page shows."""
    (cluster,) = re.findall(r"^```yaml\n(.*?)^```$", PAGES["restore"].path.read_text(), re.MULTILINE | re.DOTALL)
    return dict(read_yaml(cluster)["spec"])


@pytest.mark.finding("operator F11")
def test_the_restored_cluster_names_its_database_and_owner_so_that_its_own_secret_leads_to_the_memories() -> None:
    """Without both, CloudNativePG writes `<cluster>-app` for an empty database `app`."""
    recovery = restored_cluster()["bootstrap"]["recovery"]
    assert recovery["owner"]
    assert f"DATABASE={recovery['database']}\n" in PAGES["restore"].assignments


def test_the_restored_cluster_archives_to_another_server_name_than_it_is_restored_from() -> None:
    """CloudNativePG archives to an empty archive alone, and otherwise waits in `Setting up primary`."""
    spec = restored_cluster()
    (archiver,) = (plugin for plugin in spec["plugins"] if plugin["isWALArchiver"])
    (origin,) = spec["externalClusters"]
    assert archiver["name"] == origin["plugin"]["name"]
    assert archiver["parameters"]["serverName"] != origin["plugin"]["parameters"]["serverName"]


BACKUPS = """#!/bin/sh
case "$*" in *creationTimestamp*) echo 2026-11-01T00:00:00Z ;; *) printf '%s\\n' "$ANSWER" ;; esac
"""


@pytest.mark.parametrize(
    ("backups", "passes"),
    [
        ("pg-cluster completed 2026-11-24T07:59:59Z", True),
        ("pg-cluster failed <none>\npg-cluster completed 2026-11-23T01:00:00Z", True),
        ("pg-cluster completed 2026-11-24T08:00:01Z", False),
        ("pg-cluster completed 2026-10-31T23:59:59Z", False),
        ("pg-cluster running <none>", False),
        ("pg-cluster completed <none>", False),
        ("another completed 2026-11-23T01:00:00Z", False),
        ("", False),
    ],
)
def test_a_cluster_is_deleted_only_if_a_backup_of_it_was_complete_before_the_time_that_its_data_go_back_to(
    tmp_path: Path, backups: str, *, passes: bool
) -> None:
    """What no backup holds is lost with the Cluster. One of a former Cluster of its name is in another archive."""
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(BACKUPS)
    kubectl.chmod(0o755)
    restore = PAGES["restore"]
    target = restored_cluster()["bootstrap"]["recovery"]["recoveryTarget"]["targetTime"]
    assert f"TARGET={target} " in restore.assignments
    (deleting,) = (place for place, block in enumerate(restore.blocks) if " delete cluster." in block)
    (looking,) = (block for block in restore.blocks[:deleting] if " get backups." in block)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "ANSWER": backups}
    script = f"{restore.assignments}\n{looking}"
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], env=environment, capture_output=True, check=False)
    assert (done.returncode == 0) is passes, done.stderr


def test_a_cluster_whose_primary_answers_is_deleted_only_after_the_archive_has_what_it_wrote() -> None:
    restore = PAGES["restore"]
    (deleting,) = (place for place, block in enumerate(restore.blocks) if " delete cluster." in block)
    (waiting,) = (place for place, block in enumerate(restore.blocks) if "last_archived_wal" in block)
    assert waiting < deleting


ASKED = """#!/bin/sh
case "$*" in *psql*) cat >&2 ;; *message*) echo "belongs to MemoryIndex a/b: $NAMED" ;; esac
"""


@pytest.mark.parametrize(("named", "ended"), [("u-0", True), ("u-00", False), ("u-1", False)])
def test_the_page_ends_the_claim_that_the_message_names_by_the_statement_that_the_message_shows(
    tmp_path: Path, named: str, *, ended: bool
) -> None:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(ASKED)
    kubectl.chmod(0o755)
    claim = TableClaim("1", "a", "b", named, "2026-01-01T10:00:00Z")
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "NAMED": claim.ending()}
    script = PAGES["another-cluster"].script({"CLAIM": "u-0"})
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) is ended, done.stderr
    assert (done.stderr.split() == claim.ending().split()) is ended
