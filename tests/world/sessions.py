"""Runs tests of this project in a session of their own, as a part of `make e2e-world`."""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping

from devcluster.settings import REPOSITORY


def run_tests(*arguments: str, environment: Mapping[str, str] | None = None, seconds: float) -> str:
    """Run pytest with these arguments, and return what it prints.

    Raises:
        AssertionError: a test failed, as the end of the output says, or they did not end in time.
    """
    command = [sys.executable, "-m", "pytest", "-q", *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=REPOSITORY,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"{shlex.join(command)} did not end within {seconds:.0f} s") from error
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout
