"""Requests that schemathesis derives from our own OpenAPI description, valid ones and broken ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from schemathesis import GenerationMode

EXAMPLES = 30


@pytest.mark.promise("embedder-requests-bounded")
def test_no_generated_request_gets_an_undocumented_status_or_a_server_error(server: Any) -> None:
    schema = schemathesis.openapi.from_dict(httpx.get(f"{server.url}/openapi.json").json())
    tried: list[int] = []
    for result in schema.get_all_operations():
        operation = result.ok()
        for mode in GenerationMode.POSITIVE, GenerationMode.NEGATIVE:
            if mode is GenerationMode.POSITIVE or operation.method == "post":
                checker(operation, mode, server.url, tried)()
    assert len(tried) > EXAMPLES


def checker(operation: Any, mode: GenerationMode, url: str, tried: list[int]) -> Callable[[], None]:
    documented = {int(status) for status in operation.definition.raw["responses"]} | {404, 405}

    @seed(11)
    @settings(max_examples=EXAMPLES, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        answer = case.call(base_url=url)
        tried.append(answer.status_code)
        assert answer.status_code in documented
        assert answer.status_code < 500

    return check
