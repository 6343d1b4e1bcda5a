"""The command line of the development cluster: `python -m devcluster COMMAND`."""

import json
import os
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from devcluster import first_run, preflight, sessions
from devcluster.building.audit import audit_locks
from devcluster.building.binaries import Binaries
from devcluster.building.cuda_wheel import build_cuda_wheel
from devcluster.building.wheel import build_llama_wheel, build_own_wheel
from devcluster.errors import DevclusterError
from devcluster.images.project import build_cuda_image, build_images
from devcluster.install import install_cnpg
from devcluster.postgres import create_postgres
from devcluster.progress import ConsoleReporter
from devcluster.release.version import write_version
from devcluster.settings import REPOSITORY, DriverName, Settings

app = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode=None, help="A real Kubernetes cluster on one machine."
)
_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}

Name = Annotated[
    str | None, typer.Option("--name", "-n", help="Name of the cluster [default: $DEVCLUSTER_NAME or memory-index]")
]
DriverOption = Annotated[
    DriverName | None, typer.Option("--driver", help="kind, node or current [default: chosen, and said why]")
]


def _settings(name: str | None = None, driver: DriverName | None = None) -> Settings:
    settings = Settings()
    return settings.model_copy(update={"name": name or settings.name, "driver": driver or settings.driver})


@app.command()
def up(
    name: Name = None,
    driver: DriverOption = None,
    cnpg: Annotated[bool, typer.Option(help="Install CloudNativePG as well")] = True,
    postgres: Annotated[int, typer.Option(help="Make a Postgres cluster dbaas/pg-cluster of that many instances")] = 0,
) -> None:
    """Start a cluster that keeps running, and print the shell command that makes kubectl use it."""
    settings, reporter = _settings(name, driver), ConsoleReporter()
    cluster = sessions.start(settings=settings, reporter=reporter, detached=True)
    if cnpg or postgres:
        install_cnpg(cluster, settings=settings, reporter=reporter)
    if postgres:
        create_postgres(cluster, instances=postgres, reporter=reporter)
    typer.echo(f"export KUBECONFIG={cluster.kubeconfig}")


@app.command()
def down(name: Name = None, driver: DriverOption = None) -> None:
    """End a cluster and remove everything but its logs."""
    settings = _settings(name, driver)
    found = sessions.stop(settings=settings)
    typer.echo(f"{settings.name}: {'ended' if found else 'was not running'}", err=True)


@app.command()
def status(as_json: Annotated[bool, typer.Option("--json", help="For programs")] = False) -> None:
    """Show the clusters on this machine."""
    states = [state for driver in sessions.drivers(_settings()) for state in driver.states()]
    if as_json:
        typer.echo(json.dumps([asdict(state) for state in states]))
        return
    width = max((len(state.name) for state in states), default=0)
    for state in states:
        typer.echo(f"{state.name:{width}}  {state.driver:7}  {state.state:10}  {state.detail}")


@app.command(context_settings=_PASS_ON)
def kubectl(context: typer.Context, name: Name = None) -> None:
    """Run kubectl against the cluster: `devcluster kubectl -- get pods -A`."""
    cluster = sessions.connect(settings=_settings(name))
    _replace_process(cluster.kubectl_command(*context.args))


@app.command(name="exec", context_settings=_PASS_ON)
def execute(context: typer.Context, name: Name = None) -> None:
    """Run a program of this machine inside the cluster's network: `devcluster exec -- psql ...`."""
    if not context.args:
        raise DevclusterError("no command was given", remedy="devcluster exec -- COMMAND [ARGUMENT...]")
    _replace_process(sessions.connect(settings=_settings(name)).exec_command(context.args))


@app.command()
def load(archives: list[Path], name: Name = None) -> None:
    """Load image archives (docker save, buildah push docker-archive:) into the cluster."""
    cluster, reporter = sessions.connect(settings=_settings(name)), ConsoleReporter()
    for archive in archives:
        with reporter.step(f"Load {archive.name}"):
            cluster.load(archive)


@app.command()
def logs(component: Annotated[str | None, typer.Argument()] = None, name: Name = None) -> None:
    """Print the log of a component, or the names of all components that have a log."""
    settings = _settings(name)
    directory = settings.state_dir / settings.name / "logs"
    if component is None:
        typer.echo("\n".join(sorted(path.stem for path in directory.glob("*.log"))))
        return
    path = directory / f"{component}.log"
    if not path.exists():
        raise DevclusterError(f"there is no log {path}", remedy="list them with `devcluster logs`")
    with path.open("rb") as file:
        shutil.copyfileobj(file, sys.stdout.buffer)


@app.command()
def kubeconfig(name: Name = None) -> None:
    """Print the path of the cluster's kubeconfig."""
    typer.echo(sessions.connect(settings=_settings(name)).kubeconfig)


@app.command()
def binaries() -> None:
    """Build the pinned programs that are not built yet."""
    built = Binaries(_settings())
    built.ensure(ConsoleReporter())
    for name in ("kubernetes", "helm"):
        typer.echo(built.directory(name))


@app.command()
def build(
    driver: DriverOption = None,
    this_machine: Annotated[
        bool, typer.Option("--this-machine", help="For a cluster on this machine, sooner; not for `current`")
    ] = False,
) -> None:
    """Build what takes longest and is missing, side by side: llama.cpp, the cluster's programs and images."""
    settings = _settings(driver=driver)
    first_run.begin(settings)
    sessions.build(settings, this_machine=this_machine)


@app.command()
def prepare() -> None:
    """Build all missing programs and images, so that a cluster starts in seconds."""
    sessions.prepare(settings=_settings())


@app.command()
def wheel(
    this_processor: Annotated[bool, typer.Option("--this-processor", help="For this machine alone, sooner")] = False,
) -> None:
    """Build the wheel of llama-cpp-python if it is missing, and print its path."""
    build = build_own_wheel if this_processor else build_llama_wheel
    typer.echo(build(_settings(), ConsoleReporter()))


@app.command(name="cuda-wheel")
def cuda_wheel() -> None:
    """Build the wheel with the CUDA backend for $CUDA_ARCHITECTURES if it is missing, and print its path."""
    typer.echo(build_cuda_wheel(_settings(), ConsoleReporter()))


@app.command()
def audit(locks: Annotated[list[Path] | None, typer.Argument(help="[default: all in requirements]")] = None) -> None:
    """Look up known vulnerabilities of all locked packages; fail if one is found, and say so if there is no data."""
    typer.echo(audit_locks(locks or sorted(REPOSITORY.glob("requirements/*.txt"))))


@app.command()
def images(
    cuda: Annotated[bool, typer.Option("--cuda", help="Also the embedder's image for GPUs")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: one line")] = False,
    sbom: Annotated[Path, typer.Option(help="Directory for the bills of materials")] = Path("build/sbom"),
) -> None:
    """Build the images if the sources changed; print size and contents of each, and write its bill of materials."""
    # The library that writes bills of materials is loaded by this command only.
    from devcluster.images.report import report_image

    settings, reporter = _settings(), ConsoleReporter()
    archives = [*build_images(settings, reporter).values(), *([build_cuda_image(settings, reporter)] if cuda else [])]
    reports = [report_image(archive, sbom) for archive in archives]
    if as_json:
        typer.echo(json.dumps([asdict(report) for report in reports]))
        return
    typer.echo("\n".join(line for report in reports for line in report.lines()))


@app.command()
def version(number: Annotated[str, typer.Argument(help="X.Y.Z, or X.Y.Z-rc.1")]) -> None:
    """Write a version into every file that has one, and print the files that changed."""
    typer.echo("\n".join(write_version(REPOSITORY, number)) or f"all files have {number} already")


@app.command()
def release(
    number: Annotated[str, typer.Argument(metavar="VERSION", help="The version that this checkout is of")],
    registry: Annotated[str, typer.Argument(help="Prefix of all references, such as registry.example/memory-index")],
    *,
    key: Annotated[str, typer.Option(help="cosign's private key: a file, env://VARIABLE, or a URI of a key service")],
    output: Annotated[Path | None, typer.Option(help="[default: dist/VERSION]")] = None,
    architecture: Annotated[list[str] | None, typer.Option(help="amd64, arm64 [default: both]")] = None,
    cuda: Annotated[bool, typer.Option("--cuda", help="Also the embedder's image for GPUs, for amd64")] = False,
) -> None:
    """Publish this checkout: images, chart, wheels and plugin, signed, with provenance and bills of materials.

    python -m devcluster release 0.1.0 registry.example/memory-index --key cosign.key
    """
    # The library that writes bills of materials is loaded by few commands.
    from devcluster.release.publishing import ARCHITECTURES, publish

    published = publish(
        number,
        registry,
        key,
        output or REPOSITORY / "dist" / number,
        architectures=architecture or ARCHITECTURES,
        cuda=cuda,
        settings=_settings(),
        reporter=ConsoleReporter(),
    )
    typer.echo(json.dumps(asdict(published)))


@app.command()
def rebuild(directory: Annotated[Path, typer.Argument(help="Where a release lies, such as dist/0.1.0")]) -> None:
    """Build a release again, whatever is cached; print which artifacts are equal, and where others differ, as JSON."""
    from devcluster.release.rebuilding import rebuild as build_again

    comparisons = build_again(directory, settings=_settings(), reporter=ConsoleReporter())
    typer.echo(json.dumps({one.name: "equal" if one.equal else list(one.differing) for one in comparisons}))


@app.command(name="preflight")
def check(
    install: Annotated[bool, typer.Option("--install", help="Install the missing packages with apt")] = False,
    release: Annotated[bool, typer.Option("--release", help="Also those of a release for both architectures")] = False,
    world: Annotated[bool, typer.Option("--world", help="Also those of a release and of `make e2e-world`")] = False,
) -> None:
    """Print which drivers can run on this machine, and what is missing for each of the other drivers."""
    settings = _settings()
    if install:
        problems = [
            problem
            for driver in sessions.drivers(settings)
            if driver.name == DriverName.NODE
            for problem in driver.problems()
        ]
        facts = preflight.gather(binaries_built=True, bases_built=True)
        problems += [*preflight.build_problems(facts), *preflight.problems_of_tests(facts)]
        if release or world:
            problems += preflight.problems_of_releases(facts)
        if world:
            problems += preflight.problems_of_world(facts)
        preflight.install(problems)
    for driver in sessions.drivers(settings):
        problems_here = driver.problems()
        typer.echo(f"{driver.name}: {'can run' if not problems_here else 'cannot run'}")
        for problem in problems_here:
            typer.echo(f"  - {problem.what}: {problem.remedy}")
    choice = sessions.choose_driver(settings)
    typer.echo(f"chosen: {choice.driver.name} ({choice.reason})")


def main() -> None:
    """Run the command line; an error becomes a message on stderr and exit status 1."""
    try:
        app()
    except DevclusterError as error:
        typer.echo(f"devcluster: {error}", err=True)
        raise SystemExit(1) from None


def _replace_process(command: list[str]) -> None:
    """Replace this process by the command, so that signals reach the command and its exit status is returned."""
    os.execvp(command[0], command)  # noqa: S606 - the command is the user's
