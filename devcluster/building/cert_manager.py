"""Builds cert-manager's controllers of certificates and of its own issuers; no cluster of a developer needs them."""

from devcluster.building.binaries import Tool

_DEFINITIONS = ("certificaterequests", "certificates", "clusterissuers", "issuers")

CERT_MANAGER = Tool(
    "cert-manager",
    {"cert-manager-controller": "."},
    files={f"{kind}.yaml": f"deploy/crds/cert-manager.io_{kind}.yaml" for kind in _DEFINITIONS},
    toolchain="go1.27.3",
)
