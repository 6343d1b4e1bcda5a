"""The calls that docs/embedder.md shows work as they are printed, but for the address."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

DOCUMENT = (Path(__file__).parents[3] / "docs" / "embedder.md").read_text()
CURLS = [
    block.removeprefix("$ ")
    for block in re.findall(r"^```console\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
    if block.lstrip("$ ").startswith("curl")
]
PYTHON = re.findall(r"^```python\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)


def test_the_documentation_contains_calls() -> None:
    assert len(CURLS) >= 3
    assert len(PYTHON) >= 2


@pytest.mark.parametrize("command", CURLS)
def test_every_curl_line_gets_a_json_answer_that_is_no_error(server: Any, command: str) -> None:
    done = subprocess.run(
        ["bash", "-c", command.replace("localhost:8080", server.url).replace("localhost:9090", server.probe_url)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    answer = json.loads(done.stdout)
    assert "error" not in answer
    assert answer


@pytest.mark.parametrize("code", PYTHON)
def test_every_python_example_yields_unit_vectors(server: Any, code: str) -> None:
    names: dict[str, Any] = {}
    exec(code.replace("http://localhost:8080", server.url), names)  # noqa: S102 -- our own documentation
    found = names.get("vectors") or [item.embedding for item in names["answer"].data]
    assert found
    assert all(abs(sum(float(value) ** 2 for value in vector) - 1) < 1e-3 for vector in found)
