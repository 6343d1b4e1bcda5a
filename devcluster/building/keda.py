"""Builds KEDA, which scales by metrics of others; no cluster of a developer needs it.

The definitions and the objects that run it are kept beside its programs, as KEDA releases them.
"""

from devcluster.building.binaries import Tool
from devcluster.building.versions import tool_version

_DEFINITIONS = (
    "keda.sh_clustertriggerauthentications",
    "keda.sh_scaledjobs",
    "keda.sh_scaledobjects",
    "keda.sh_triggerauthentications",
    "eventing.keda.sh_cloudeventsources",
    "eventing.keda.sh_clustercloudeventsources",
)
_OBJECTS = (
    "service_account/service_account",
    "rbac/role",
    "rbac/role_binding",
    "manager/manager",
    "manager/service",
    "metrics-server/role",
    "metrics-server/role_binding",
    "metrics-server/deployment",
    "metrics-server/service",
    "metrics-server/api_service",
)

KEDA = Tool(
    "keda",
    {name: f"github.com/kedacore/keda/v2/cmd/{name}" for name in ("operator", "adapter")},
    {"github.com/kedacore/keda/v2/version.Version": tool_version("keda").removeprefix("v")},
    {
        **{f"{name}.yaml": f"config/crd/bases/{name}.yaml" for name in _DEFINITIONS},
        **{f"{path.replace('/', '-')}.yaml": f"config/{path}.yaml" for path in _OBJECTS},
    },
    toolchain="go1.27.3",
)
