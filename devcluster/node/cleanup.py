"""Removes what a node leaves on the machine once its processes have ended. Logs stay."""

import shutil
from pathlib import Path

from devcluster.node import cgroups
from devcluster.node.layout import Layout


def clean(root: Path, cgroup: str) -> bool:
    """Remove control groups, data and kubeconfig, and return whether nothing is left."""
    layout = Layout(root)
    gone = cgroups.remove(cgroup)
    layout.kubeconfig.unlink(missing_ok=True)
    shutil.rmtree(layout.data, ignore_errors=True)
    return gone and not layout.data.exists()
