"""The pinned versions of everything that devcluster builds and runs.

The programs that are built from Go modules are pinned by the go.mod files in `tools/`, and their versions are read from
there instead of being repeated here. All other versions are constants in this module.
"""

import re
from functools import cache
from pathlib import Path

from devcluster.errors import DevclusterError
from devcluster.settings import REPOSITORY

PAUSE_IMAGE = "localhost/pause:1"
POSTGRES_IMAGE = "localhost/postgresql:18"
PYTHON_IMAGE = "localhost/python:3.13"
POSTGRES_PACKAGES = ("postgresql-18", "postgresql-18-pgvector")
POSTGRES_SUITE = "forky"
PYTHON_PACKAGES = ("python3", "python3-venv", "libgomp1")
PYTHON_SUITE = "trixie"

# Public images for drivers that can pull.
PUBLIC_POSTGRES_IMAGE = "ghcr.io/cloudnative-pg/postgresql:18-standard-trixie"
PUBLIC_PYTHON_IMAGE = "python:3.13-slim"

LLAMA_CPP_PYTHON = "0.3.36"
LLAMA_CPP_PYTHON_SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"

_MODULES = {
    "kubernetes": "k8s.io/kubernetes",
    "etcd": "go.etcd.io/etcd/server/v3",
    "coredns": "github.com/coredns/coredns",
    "helm": "helm.sh/helm/v4",
    "cnpg": "github.com/cloudnative-pg/cloudnative-pg",
    "cert-manager": "github.com/cert-manager/cert-manager",
    "opentofu": "github.com/opentofu/opentofu",
    "terraform-provider-helm": "github.com/hashicorp/terraform-provider-helm",
    "terraform-provider-kubectl": "github.com/gavinbunney/terraform-provider-kubectl",
    "external-secrets": "github.com/external-secrets/external-secrets",
    "argo-cd": "github.com/argoproj/argo-cd/v3",
    "flux-kustomize-controller": "github.com/fluxcd/kustomize-controller",
    "flux-source-controller": "github.com/fluxcd/source-controller",
    "keda": "github.com/kedacore/keda/v2",
}

# One go.mod pins these, so that the packages that they share, half of all, have one version and are compiled once.
_IN_ONE_MODULE = ("kubernetes", "etcd", "coredns", "helm", "cnpg")


def required_version(go_mod: str, module: str) -> str:
    """Return the version of `module` that the text of a go.mod file requires, with its leading v."""
    found = re.search(rf"^(?:require)?\s*{re.escape(module)} (v\S+)", go_mod, flags=re.MULTILINE)
    if found is None:
        raise DevclusterError(f"go.mod does not require {module}", remedy="restore the file below tools/ from git")
    return found.group(1)


@cache
def tool_version(tool: str) -> str:
    """Return the pinned version of one of the tools below `tools/`, with its leading v."""
    return required_version((tool_directory(tool) / "go.mod").read_text(encoding="utf-8"), _MODULES[tool])


def tool_directory(tool: str) -> Path:
    """Return the directory of the go.mod file that pins one of the tools."""
    return REPOSITORY / "tools" / ("cluster" if tool in _IN_ONE_MODULE else tool)


def tool_module(tool: str) -> str:
    """Return the Go module path of one of the tools below `tools/`."""
    return _MODULES[tool]
