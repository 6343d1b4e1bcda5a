"""Sets up and removes the two environments of the demo: local processes, and a cluster."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import devcluster
from devcluster.cluster import Cluster
from devcluster.demo import scenario
from devcluster.demo.cluster import ClusterEnvironment, Names
from devcluster.demo.console import DemoConsole
from devcluster.demo.dataset import Dataset
from devcluster.demo.diagnosis import describe_pods
from devcluster.demo.environment import DemoError
from devcluster.demo.local import local_environment
from devcluster.demo.scenario import Record
from devcluster.errors import DevclusterError, UnsupportedError
from devcluster.install import OPERATOR_NAMESPACE, install_operator
from devcluster.settings import REPOSITORY, DriverName, Settings

MANIFEST = REPOSITORY / "examples" / "demo.yaml"
MODEL_FILE = Path("models") / "all-MiniLM-L6-v2.gguf"
INSTANCES = 2
KEPT_NAME = "demo"


def run_on_this_machine(console: DemoConsole, dataset: Dataset, record: Record) -> None:
    """Tell the user that this demo shows no cluster, then run it with local processes."""
    console.say(
        "Without a cluster: Postgres, embedder and command line run as processes of this machine. The path of the data"
        " is the real one; Kubernetes, CloudNativePG and the operator are not shown."
    )
    with local_environment(console, Settings().cache_dir / MODEL_FILE) as environment:
        scenario.run(environment, console, dataset, record)


def run_on_cluster(
    console: DemoConsole, dataset: Dataset, record: Record, *, driver: DriverName | None, keep: bool
) -> None:
    """Run the demo on a new cluster with CloudNativePG, Postgres and the operator from its chart."""
    settings = Settings().model_copy(update={"driver": driver} if driver else {})
    try:
        devcluster.choose_driver(settings)
    except DevclusterError as error:
        raise UnsupportedError(error.message, detail=error.detail, remedy=error.remedy) from error
    name = KEPT_NAME if keep else f"{KEPT_NAME}-{os.getpid()}"
    with devcluster.start(name, settings=settings, reporter=console, detached=keep) as cluster:
        record.update(cluster=str(cluster.driver))
        try:
            scenario.run(_prepared(cluster, console, dataset, settings), console, dataset, record)
        finally:
            if keep:
                console.say(_how_to_go_on(cluster))


def _prepared(cluster: Cluster, console: DemoConsole, dataset: Dataset, settings: Settings) -> ClusterEnvironment:
    devcluster.install_cnpg(cluster, settings=settings, reporter=console)
    this_machine = cluster.driver != DriverName.CURRENT
    with ThreadPoolExecutor(1) as pool:  # Postgres needs none of our images, so it starts while they are loaded
        creating = pool.submit(devcluster.create_postgres, cluster, instances=INSTANCES, database=Names().database)
        images = devcluster.load_images(cluster, settings=settings, reporter=console, this_machine=this_machine)
        with console.step(f"Wait for Postgres, {INSTANCES} instances"):
            postgres = creating.result()
    with console.step("helm install charts/memory-index") as step:
        try:
            install_operator(cluster, operator_image=images.operator, embedder_image=images.embedder)
        except DevclusterError as error:
            raise DemoError(f"{error}\n{describe_pods(cluster, OPERATOR_NAMESPACE)}") from error
        step.result = "the operator is ready"
    environment = ClusterEnvironment(postgres, MANIFEST, rows=len(dataset.memories))
    with console.step("A user's namespace, Secret and toolbox pod"):
        environment.prepare(images.operator)
    return environment


def _how_to_go_on(cluster: Cluster) -> str:
    names = Names()
    toolbox = f"kubectl -n {names.namespace} exec -it toolbox --"
    return f"""
The cluster {cluster.name} stays. To go on:
  export KUBECONFIG={cluster.kubeconfig}
  kubectl get memoryindexes -A -o wide
  kubectl -n {names.namespace} describe memoryindex {names.index}
  {toolbox} memory recall "where do we keep the spare key?" --everyone --explain
  {toolbox} memory status
To end it:
  python -m devcluster down --name {cluster.name}
"""
