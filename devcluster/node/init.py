"""The init process, the first one inside a node's namespaces: it sets them up, then supervises the components.

The keeper starts it with `python -m devcluster.node.init PLAN`. When it ends, for whatever reason, the kernel ends the
whole node.
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
    """Give this process' session nine times the share of the processors that other sessions have.

    The kernel shares processors among sessions (sched(7), autogroup). Each backend of a Postgres server is one, so the
    tests beside a cluster's would starve its API server. A kernel without this feature shares them among processes.
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
