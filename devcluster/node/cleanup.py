"""Removes what a node leaves on the machine after its processes have ended; logs are kept."""

import shutil
from pathlib import Path

from devcluster.node import cgroups
from devcluster.node.layout import Layout


def clean(root: Path, cgroup: str) -> bool:
    """Remove the node's control group, data and kubeconfig; return whether all are gone."""
    layout = Layout(root)
    gone = cgroups.remove(cgroup)
    layout.kubeconfig.unlink(missing_ok=True)
    shutil.rmtree(layout.data, ignore_errors=True)
    return gone and not layout.data.exists()
