"""Builds the image that holds the third-party servers, with two models that have vectors of the same length."""

import os
import tempfile
from pathlib import Path

from devcluster.building.digests import digest_of_files
from devcluster.building.llama_server import llama_server_program
from devcluster.building.wheel import build_llama_wheel
from devcluster.images.builders import Build, choose_builder
from devcluster.images.project import base_name, provide_base
from devcluster.locks import locked
from devcluster.progress import Reporter
from devcluster.settings import Settings

IMAGE = "localhost/other-embedders:test"
MODELS = ("bge-small-en-v1.5.gguf", "all-MiniLM-L6-v2.gguf")
_DOCKERFILE = "tests/embedders/Dockerfile"


def build_servers_image(archive: Path, *, settings: Settings, reporter: Reporter) -> None:
    """Build the image into `archive`; llama-server is compiled first if the cache has none (ten minutes)."""
    builder = choose_builder(settings)
    contexts = {
        "llama": llama_server_program(settings.cache_dir, reporter).parent,
        "wheel": build_llama_wheel(settings, reporter).parent,
    }
    with tempfile.TemporaryDirectory(prefix="models-", dir=settings.cache_dir) as scratch:
        for model in MODELS:  # hard links, since a build context has no links to elsewhere
            os.link(settings.cache_dir / "models" / model, Path(scratch) / model)
        contexts["models"] = Path(scratch)
        digests = {name: digest_of_files(path, (".",), {}) for name, path in contexts.items() if name != "wheel"}
        with locked(settings.cache_dir / "images" / ".build-lock", lambda: reporter.say("Waiting for another build.")):
            base = provide_base(base_name(builder, settings), builder, settings, reporter)
            arguments = {
                "BASE_IMAGE": base.name,
                "CONTEXTS_DIGEST": "-".join([contexts["wheel"].name, *digests.values()]),
            }
            with reporter.step(f"Build image {IMAGE} with {builder.name}") as step:
                builder.build(Build(IMAGE, _DOCKERFILE, None, arguments, contexts), archive, step)
                step.note("")
