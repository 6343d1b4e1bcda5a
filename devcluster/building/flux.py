"""Builds the two controllers of Flux that apply objects from an OCI registry; no cluster of a developer needs them.

The definitions and the objects that run the controllers are kept beside them, as Flux releases them.
"""

from devcluster.building.binaries import Tool

_TOOLCHAIN = "go1.27.3"
_DEFINITIONS = "config/crd/bases"
# The source controller watches all kinds of sources, so their definitions have to be there before it starts.
_SOURCES = ("buckets", "externalartifacts", "gitrepositories", "helmcharts", "helmrepositories", "ocirepositories")

KUSTOMIZE_CONTROLLER = Tool(
    "flux-kustomize-controller",
    {"kustomize-controller": "github.com/fluxcd/kustomize-controller"},
    files={
        "kustomizations.yaml": f"{_DEFINITIONS}/kustomize.toolkit.fluxcd.io_kustomizations.yaml",
        "deployment.yaml": "config/manager/deployment.yaml",
    },
    toolchain=_TOOLCHAIN,
)
SOURCE_CONTROLLER = Tool(
    "flux-source-controller",
    {"source-controller": "github.com/fluxcd/source-controller"},
    files={
        **{f"{kind}.yaml": f"{_DEFINITIONS}/source.toolkit.fluxcd.io_{kind}.yaml" for kind in _SOURCES},
        "deployment.yaml": "config/manager/deployment.yaml",
        "service.yaml": "config/manager/service.yaml",
    },
    toolchain=_TOOLCHAIN,
)
FLUX = (KUSTOMIZE_CONTROLLER, SOURCE_CONTROLLER)
