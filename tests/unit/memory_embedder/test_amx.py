"""AMX kernels are tried in a child process, whose death costs nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from memory_embedder.engine import amx
from memory_embedder.engine.backends import Backends
from memory_embedder.models.model_file import ModelFile
from memory_embedder.models.profiles import DEFAULT_MODEL, find_profile

_ENDS = {
    "well": ("pass", True),
    "with an error": ("raise SystemExit(1)", False),
    "by an illegal instruction": ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", False),
    "never": ("import time; time.sleep(60)", False),
}


@pytest.mark.parametrize(("program", "lives"), _ENDS.values(), ids=_ENDS.keys())
def test_a_process_survives_if_it_ends_with_success_in_time(program: str, lives: bool) -> None:
    assert amx.survives([sys.executable, "-c", program], 20.0 if program != _ENDS["never"][0] else 0.5) is lives


def test_a_program_that_is_not_there_does_not_survive() -> None:
    assert not amx.survives(["/nowhere/python"], 1.0)


def test_a_model_that_kills_the_trial_is_kept_from_amx_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(amx, "amx_possible", lambda: True)
    path = tmp_path / "that-is-none.gguf"
    path.write_bytes(b"no model")
    with ModelFile(path) as file, capture_logs() as logged:
        assert not amx.amx_works(file, find_profile(DEFAULT_MODEL))
    assert [entry["file"] for entry in logged] == ["that-is-none.gguf"]


def test_nothing_is_tried_where_no_kernel_has_amx(monkeypatch: pytest.MonkeyPatch, model_file: Path) -> None:
    monkeypatch.setattr(amx, "amx_possible", lambda: False)
    monkeypatch.setattr(amx, "survives", lambda *_: pytest.fail("a trial was made"))
    with ModelFile(model_file) as file:
        assert amx.amx_works(file, find_profile(DEFAULT_MODEL))


@pytest.mark.parametrize(("kernels", "may"), [("sapphirerapids", True), ("built-in", True), ("zen4", False)])
def test_kernels_are_said_to_have_amx_only_where_they_may_use_it(kernels: str, may: bool) -> None:
    assert Backends(kernels, ()).amx is may
