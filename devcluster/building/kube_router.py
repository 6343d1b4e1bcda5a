"""Builds kube-router, which enforces NetworkPolicies; no cluster of a developer needs it."""

from devcluster.building.binaries import Tool
from devcluster.building.versions import tool_module, tool_version

_MODULE = tool_module("kube-router")

KUBE_ROUTER = Tool(
    "kube-router",
    {"kube-router": f"{_MODULE}/cmd/kube-router"},
    {f"{_MODULE}/pkg/version.Version": tool_version("kube-router")},
    toolchain="go1.27.3",
)
