"""The two places where the story can be told, put up and taken down."""

from pathlib import Path

from devcluster.demo import story
from devcluster.demo.dataset import Dataset
from devcluster.demo.local import local_stand
from devcluster.demo.narrator import Narrator
from devcluster.demo.story import Record
from devcluster.settings import REPOSITORY, DriverName, Settings

MANIFEST = REPOSITORY / "examples" / "demo.yaml"
MODEL_FILE = Path("models") / "all-MiniLM-L6-v2.gguf"


def on_this_machine(narrator: Narrator, dataset: Dataset, record: Record) -> None:
    """Without a cluster; says so before anything else."""
    narrator.say(
        "Without a cluster: Postgres, embedder and command line run as processes of this machine. The path of the data"
        " is the real one; Kubernetes, CloudNativePG and the operator are not shown."
    )
    with local_stand(narrator, Settings().cache_dir / MODEL_FILE) as stand:
        story.tell(stand, narrator, dataset, record)


def on_a_cluster(
    narrator: Narrator, dataset: Dataset, record: Record, *, driver: DriverName | None, keep: bool
) -> None:
    """A cluster of the story's own, with CloudNativePG, Postgres and the operator from its chart."""
    raise NotImplementedError
