"""A real Kubernetes cluster on one machine, for the demo, the tests and the benchmarks.

    with devcluster.start("tests") as cluster:
        devcluster.install_cnpg(cluster)
        postgres = devcluster.create_postgres(cluster, instances=2)
        dsn = devcluster.create_database(cluster, postgres, "memories")

Each public name of this package is imported when it is first used. The processes inside a node are modules of this
package, too, and they stay small only if they do not import the whole package.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from devcluster.cluster import Cluster
    from devcluster.errors import CommandError, DevclusterError, UnsupportedError
    from devcluster.images.project import ProjectImages, build_images, load_images
    from devcluster.install import install_cnpg
    from devcluster.postgres import Postgres, create_database, create_postgres
    from devcluster.progress import ConsoleReporter, Reporter, SilentReporter
    from devcluster.sessions import choose_driver, connect, find, prepare, start, stop
    from devcluster.settings import DriverName, Settings

_MODULES = {
    "Cluster": "cluster",
    "install_cnpg": "install",
    "CommandError": "errors",
    "DevclusterError": "errors",
    "UnsupportedError": "errors",
    "Postgres": "postgres",
    "create_database": "postgres",
    "create_postgres": "postgres",
    "ConsoleReporter": "progress",
    "Reporter": "progress",
    "SilentReporter": "progress",
    "ProjectImages": "images.project",
    "build_images": "images.project",
    "load_images": "images.project",
    "choose_driver": "sessions",
    "connect": "sessions",
    "find": "sessions",
    "prepare": "sessions",
    "start": "sessions",
    "stop": "sessions",
    "DriverName": "settings",
    "Settings": "settings",
}

__all__ = [
    "Cluster",
    "CommandError",
    "ConsoleReporter",
    "DevclusterError",
    "DriverName",
    "Postgres",
    "ProjectImages",
    "Reporter",
    "Settings",
    "SilentReporter",
    "UnsupportedError",
    "build_images",
    "choose_driver",
    "connect",
    "create_database",
    "create_postgres",
    "find",
    "install_cnpg",
    "load_images",
    "prepare",
    "start",
    "stop",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the name stands for
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
