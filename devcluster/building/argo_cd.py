"""Builds Argo CD, which applies what a repository has; no cluster of a developer needs it."""

from devcluster.building.binaries import Tool

DEFINITIONS = ("application", "appproject")
VERIFIER = "git-verify-wrapper.sh"  # the repository server runs it for every commit, signed or not

ARGO_CD = Tool(
    "argo-cd",
    {"argocd": "github.com/argoproj/argo-cd/v3/cmd"},
    files={
        **{f"{name}.yaml": f"manifests/crds/{name}-crd.yaml" for name in DEFINITIONS},
        VERIFIER: f"hack/{VERIFIER}",
    },
    toolchain="go1.27.3",
)
