"""The demo on a kind cluster, wherever kind and a container engine are; elsewhere the run says what is missing."""

import json
import subprocess
import sys
from typing import Any

import pytest

from devcluster.building.binaries import Binaries
from devcluster.building.programs import Programs
from devcluster.drivers.kind import KindDriver
from devcluster.settings import REPOSITORY, DriverName, Settings

_SETTINGS = Settings()
MISSING = [problem.what for problem in KindDriver(_SETTINGS, Programs(Binaries(_SETTINGS))).problems()]


@pytest.mark.timeout(3600)  # a first run also fetches images
@pytest.mark.skipif(bool(MISSING), reason=f"kind is not tried here: {', '.join(MISSING)}")
def test_the_demo_ends_ready_on_kind(figures: dict[str, Any]) -> None:
    command = [sys.executable, "-m", "devcluster.demo", "--driver", DriverName.KIND]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=3500)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert (outcome["ready"], outcome["cluster"], outcome["sensitive_embedded"]) == (True, "kind", 0)
    figures["kind"] = outcome["seconds"]
