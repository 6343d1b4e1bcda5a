"""Starts, finds and ends clusters, with the wanted driver or with the first driver that can run here."""

from pathlib import Path

from devcluster.building.binaries import Binaries
from devcluster.building.programs import Programs
from devcluster.building.side_by_side import Lane, available_memory, build_side_by_side
from devcluster.building.wheel import OWN_TITLE, TITLE, build_llama_wheel, build_own_wheel, own_wheel_path, wheel_path
from devcluster.cluster import Cluster
from devcluster.drivers.base import Choice, Driver, choose
from devcluster.drivers.current import CurrentDriver
from devcluster.drivers.kind import KindDriver
from devcluster.drivers.node import NodeDriver
from devcluster.errors import DevclusterError
from devcluster.images.bases import BaseImages, step_title
from devcluster.images.project import build_images, build_operator_image
from devcluster.progress import ConsoleReporter, Reporter
from devcluster.settings import DriverName, Settings

_DEBIAN_IMAGES = ("python", "postgresql")


def drivers(settings: Settings) -> tuple[Driver, ...]:
    """Return all drivers, in the order in which they are tried."""
    programs = Programs(Binaries(settings))
    return (KindDriver(settings, programs), NodeDriver(settings), CurrentDriver(programs))


def choose_driver(settings: Settings | None = None) -> Choice:
    """Choose the driver to use on this machine; the result also says why."""
    settings = settings or Settings()
    return choose(drivers(settings), settings.driver)


def build(settings: Settings, *, this_machine: bool = False) -> None:
    """Build what is missing of llama.cpp, programs and images, at the same time; `prepare` builds the rest.

    With `this_machine`, a cluster on this machine is enough, and llama.cpp is built for its processor alone.
    """
    driver, binaries = choose_driver(settings).driver, Binaries(settings)
    own = this_machine and driver.name != DriverName.CURRENT
    present, build_wheel = (own_wheel_path, build_own_wheel) if own else (wheel_path, build_llama_wheel)
    wheel_title = OWN_TITLE if own else TITLE
    programs = [tool.title for tool in binaries.missing()]

    def build_programs(reporter: Reporter) -> None:
        driver.prepare(reporter)
        binaries.ensure(reporter, ("cnpg",))

    lanes = []
    if present(settings) is None:

        def build_embedder(reporter: Reporter) -> None:
            build_wheel(settings, reporter)
            build_images(settings, reporter, this_machine=own)

        lanes.append(Lane(build_embedder, (wheel_title,)))
    if driver.name == DriverName.NODE:
        bases = BaseImages(settings, binaries)

        def build_operator(reporter: Reporter) -> None:
            bases.ensure(_DEBIAN_IMAGES, reporter)
            build_operator_image(settings, reporter)

        lanes.append(Lane(build_operator, tuple(map(step_title, bases.missing(_DEBIAN_IMAGES)))))
    lanes.append(Lane(build_programs, tuple(programs)))
    build_side_by_side(lanes, memory=available_memory(Path("/proc/meminfo").read_text(encoding="ascii")))


def prepare(*, settings: Settings | None = None, reporter: Reporter | None = None) -> None:
    """Build all missing programs and images, so that a cluster starts in seconds."""
    settings, reporter = settings or Settings(), reporter or ConsoleReporter()
    choose_driver(settings).driver.prepare(reporter)
    Binaries(settings).ensure(reporter, ("cnpg",))
    build_images(settings, reporter)


def start(
    name: str | None = None,
    *,
    settings: Settings | None = None,
    reporter: Reporter | None = None,
    detached: bool = False,
) -> Cluster:
    """Start a cluster, which ends when the returned cluster is closed; with `detached`, only `stop` ends it.

    A cluster of the `node` driver that is not detached also ends when this process is killed.
    """
    settings, reporter = settings or Settings(), reporter or ConsoleReporter()
    choice = choose_driver(settings)
    reporter.say(f"Cluster by driver {choice.driver.name} ({choice.reason})")
    return choice.driver.up(name or settings.name, reporter, attached=not detached)


def find(name: str | None = None, *, settings: Settings | None = None) -> Cluster | None:
    """Return the running cluster of this name from any driver, or None if there is none."""
    settings = settings or Settings()
    wanted = [driver for driver in drivers(settings) if settings.driver in (None, driver.name)]
    for driver in wanted:
        if settings.driver is None and driver.name == "current":
            continue
        cluster = driver.find(name or settings.name)
        if cluster is not None:
            return cluster
    return None


def connect(name: str | None = None, *, settings: Settings | None = None) -> Cluster:
    """Return the running cluster of this name.

    Raises:
        DevclusterError: no such cluster is running; the message says how to start one.
    """
    settings = settings or Settings()
    cluster = find(name, settings=settings)
    if cluster is None:
        raise DevclusterError(
            f"no cluster named {name or settings.name} is running", remedy="start one with `python -m devcluster up`"
        )
    return cluster


def stop(name: str | None = None, *, settings: Settings | None = None) -> bool:
    """End the cluster of this name and remove what it leaves behind; return False if there was none."""
    settings = settings or Settings()
    wanted = [
        driver
        for driver in drivers(settings)
        if settings.driver == driver.name or (settings.driver is None and driver.name != "current")
    ]
    ended = [driver.down(name or settings.name) for driver in wanted]
    return any(ended)
