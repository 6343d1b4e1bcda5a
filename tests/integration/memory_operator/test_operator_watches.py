"""The operator's process at an API server that ends one of its watches."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from memory_operator.clients.kube import KINDS

Object = dict[str, object]
_GONE: Object = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410}
_NAMESPACE: Object = {
    "kind": "Namespace",
    "apiVersion": "v1",
    "metadata": {"name": "team"},
    "status": {"phase": "Active"},
}
_PODS = [{"metadata": {"name": f"pod-{n}", "namespace": "team", "uid": str(n)}} for n in range(20)]
_LISTED = {plural for _, _, plural in KINDS.values()}
_VERBS = ["get", "list", "watch", "create", "patch", "update", "delete"]
_LONGEST_RUN_SECONDS = 300
_OPERATOR = """
from memory_operator import app, cli

app.METRICS_PORT = app.HEALTH_PORT = 0
cli.main()
"""


def _groups() -> list[Object]:
    served = {group: {"groupVersion": f"{group}/{version}", "version": version} for group, version, _ in KINDS.values()}
    return [{"name": group, "versions": [one], "preferredVersion": one} for group, one in served.items() if group]


def _resources(group: str) -> list[Object]:
    return [
        {"name": plural, "singularName": kind.lower(), "namespaced": True, "kind": kind, "verbs": _VERBS}
        for kind, (of, _, plural) in KINDS.items()
        if of == group
    ]


async def _answer(request: web.Request) -> web.StreamResponse:
    """Answer as an empty cluster whose PodDisruptionBudgets can no longer be listed from where a list began."""
    if "watch" in request.query:
        stream = web.StreamResponse()
        await stream.prepare(request)
        await asyncio.Event().wait()
    body: Object = _NAMESPACE
    match request.path.strip("/").split("/"):
        case ["api"]:
            body = {"kind": "APIVersions", "versions": ["v1"]}
        case ["apis"]:
            body = {"kind": "APIGroupList", "groups": _groups()}
        case ["api", _]:
            body = {"kind": "APIResourceList", "resources": _resources("")}
        case ["apis", group, _]:
            body = {"kind": "APIResourceList", "resources": _resources(group)}
        case [*_, "poddisruptionbudgets"]:
            body = _GONE
        case [*_, plural] if plural in _LISTED:
            items = _PODS if plural == "pods" else []
            body = {"kind": "List", "metadata": {"resourceVersion": "1"}, "items": items}
    return web.json_response(body, status=410 if body is _GONE else 200)


@pytest.fixture
async def configuration(tmp_path: Path) -> AsyncIterator[Path]:
    """A kubeconfig file for the server of this test."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", _answer)
    async with TestServer(application, shutdown_timeout=0.1) as server:
        file = tmp_path / "kubeconfig"
        found = {
            "clusters": [{"name": "c", "cluster": {"server": str(server.make_url(""))}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        file.write_text(json.dumps(found))
        yield file


async def test_an_operator_one_of_whose_watches_fails_ends_with_an_error(configuration: Path) -> None:
    """Kubernetes starts it again; a process that went on would never hear of some objects."""
    variables = {
        **os.environ,
        "KUBECONFIG": str(configuration),
        "MEMORY_OPERATOR_NAMESPACES": "team",
        "MEMORY_OPERATOR_IMAGES_OPERATOR": "operator",
        "MEMORY_OPERATOR_IMAGES_EMBEDDER": "embedder",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _OPERATOR, "run", env=variables, stderr=asyncio.subprocess.PIPE
    )
    try:
        _, output = await asyncio.wait_for(process.communicate(), _LONGEST_RUN_SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 1, output
    assert b"Expired" in output, "the error of the watch is what the log ends with"
