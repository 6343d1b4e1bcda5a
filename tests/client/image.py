"""Builds the image of the changed memory API from its sources and the example's Dockerfile."""

import tempfile
from pathlib import Path

from devcluster.building.digests import digest_of_files
from devcluster.images.builders import Build, choose_builder
from devcluster.images.project import base_name, provide_base
from devcluster.locks import locked
from devcluster.progress import Reporter
from devcluster.settings import Settings
from tests.client.change import PATCH, copy_client

IMAGE = "localhost/claude-memory:hybrid"
_DOCKERFILE = "examples/claude-memory/Dockerfile"
_CLIENT_FILES = ("pyproject.toml", "README.md", "src", "migrations")


def build_client_image(client: Path, archive: Path, *, settings: Settings, reporter: Reporter) -> None:
    """Apply the patch to a copy of the API's sources and build the image into `archive`."""
    builder = choose_builder(settings)
    with tempfile.TemporaryDirectory(prefix="claude-memory-") as scratch:
        patched = Path(scratch) / "client"
        copy_client(client, patched, patched=True)
        digest = digest_of_files(patched, _CLIENT_FILES, {"patch": PATCH.read_text()})
        with locked(settings.cache_dir / "images" / ".build-lock", lambda: reporter.say("Waiting for another build.")):
            base = provide_base(base_name(builder, settings), builder, settings, reporter)
            arguments = {"BASE_IMAGE": base.name, "CLIENT_DIGEST": digest}
            with reporter.step(f"Build image {IMAGE} with {builder.name}") as step:
                builder.build(Build(IMAGE, _DOCKERFILE, None, arguments, {"client": patched}), archive, step)
                step.note("")
