"""The init process, the first process inside a node's namespaces: it sets them up, then supervises the components.

The keeper starts it with `python -m devcluster.node.init PLAN`. When the init process ends, for whatever reason, the
kernel ends the whole node.
"""

import signal
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType

from devcluster.node import cgroups, configs, namespaces
from devcluster.node.components import components, log_file
from devcluster.node.events import EventLog
from devcluster.node.layout import INSIDE, Layout, Plan
from devcluster.node.supervisor import ComponentFailedError, Supervisor


def main(plan_file: str) -> int:
    """Set up the node and supervise its components until the node ends."""
    signal.signal(signal.SIGTERM, _end)
    prefer_this_session()
    plan = Plan.read(Path(plan_file))
    events = EventLog(Layout(Path(plan.root)).events)
    try:
        namespaces.mount_private(Path(plan.root))
        events = EventLog(Layout(INSIDE).events)
        _prepare(plan, Layout(INSIDE))
        Supervisor(
            components(plan.programs, plan.images, plan.listener_descriptor), log_file, events, plan.ready_seconds
        ).run()
    except (OSError, ComponentFailedError) as error:
        events.add("failed", detail=str(error))
    return 1


def prefer_this_session(file: Path = Path("/proc/self/autogroup")) -> None:
    """Give this process's session nine times the share of the processors that other sessions have.

    The kernel shares processors among sessions; see "autogroup" in sched(7). Each backend of a Postgres server is a
    session of its own, so tests that run Postgres on the same machine would starve the cluster's API server. On a
    kernel without this feature nothing is changed.
    """
    with suppress(OSError):
        file.write_text("-10", encoding="ascii")


def _prepare(plan: Plan, layout: Layout) -> None:
    files = configs.files(
        cgroup=plan.cgroup,
        pause_image=plan.pause_image,
        snapshotter=namespaces.snapshotter(layout.data),
        cni_plugins=_cni_plugins(),
        volumes=plan.volumes,
    )
    for name, text in files.items():
        path = layout.config / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    namespaces.mount_name_resolution(layout)
    namespaces.build_network()
    namespaces.prepare_volumes(layout.volumes, plan.volumes)
    cgroups.create(plan.cgroup)


def _cni_plugins() -> str:
    for directory in configs.CNI_PLUGIN_DIRECTORIES:
        if Path(directory, "bridge").exists():
            return directory
    raise OSError("the CNI plugin `bridge` is not installed")


def _end(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
