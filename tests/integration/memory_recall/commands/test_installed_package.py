"""The library that pip installs, without a checkout beside it."""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from memory_recall.schema.revisions import HEAD_REVISION
from tests.integration.conftest import Database

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which pip has installed the library, from a copy, since building writes into the source."""
    folder = tmp_path_factory.mktemp("package")
    for name in ("recall", "migrations"):
        shutil.copytree(ROOT / name, folder / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
    offline = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    pip = [sys.executable, "-m", "pip", "install", *offline, "--target"]
    subprocess.run([*pip, folder / "installed", folder / "source" / "recall"], check=True, timeout=120)
    shutil.rmtree(folder / "source")
    return folder / "installed"


async def test_memory_migrate_runs_from_an_installed_package(
    installed: Path, database: Database, tmp_path: Path
) -> None:
    """As the page of the library tells its users to install it."""
    environment = {**os.environ, "PYTHONPATH": str(installed), "MEMORY_DATABASE_URL": database.dsn}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "memory_recall", "migrate", "--json",
        cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(120):
        output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    assert f'"{HEAD_REVISION}"' in output.decode()
