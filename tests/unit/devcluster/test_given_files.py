"""A wheel or model that is given to an image build is used only if it has the digest that the build argument states.

The lines of Dockerfile.embedder that take them are run here as they stand there, with other folders.
"""

import hashlib
import re
import subprocess
from pathlib import Path

import pytest

from devcluster.settings import REPOSITORY

FILE = b"what was given"
RIGHT, WRONG = hashlib.sha256(FILE).hexdigest(), hashlib.sha256(b"another file").hexdigest()
GIVEN = {"WHEELHOUSE_DIGEST": "llama_cpp_python-0.0.1-py3-none-any.whl", "MODELS_DIGEST": "all-MiniLM-L6-v2.gguf"}


def take(argument: str, digest: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the branch of the Dockerfile that takes a given file from `folder`/given; without one, it prints `made`."""
    dockerfile = (REPOSITORY / "Dockerfile.embedder").read_text(encoding="utf-8")
    found = re.search(rf'if \[ "\${argument}" \].*?; \\\n\s+else', dockerfile, flags=re.DOTALL)
    assert found, argument
    script = f"{found[0]} echo made; fi"
    for path in ("/given", "/wheels", "/taken.gguf"):
        script = script.replace(path, f"{folder}{path}")
    script = script.replace("/src/embedder-service", str(REPOSITORY / "embedder-service"))
    environment = {"PATH": "/usr/bin:/bin", argument: digest, "target": f"{folder}/taken.gguf"}
    return subprocess.run(["sh", "-euc", script], env=environment, capture_output=True, text=True, check=False)


def taken(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in (*folder.glob("wheels/*"), *folder.glob("taken.gguf"))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "given").mkdir()
    return tmp_path


@pytest.mark.parametrize(("argument", "name"), GIVEN.items())
def test_a_file_with_the_stated_digest_is_taken(argument: str, name: str, folder: Path) -> None:
    (folder / "given" / name).write_bytes(FILE)
    done = take(argument, RIGHT, folder)
    assert done.returncode == 0, done.stderr
    assert taken(folder) == [FILE]


@pytest.mark.finding("M12")
@pytest.mark.parametrize(("argument", "name"), GIVEN.items())
def test_a_file_with_another_digest_is_refused_with_both_digests(argument: str, name: str, folder: Path) -> None:
    (folder / "given" / name).write_bytes(FILE)
    done = take(argument, WRONG, folder)
    assert done.returncode != 0
    assert all(text in done.stderr for text in (name, argument, RIGHT, WRONG))
    assert taken(folder) == []


@pytest.mark.finding("M12")
@pytest.mark.parametrize(("argument", "name"), GIVEN.items())
def test_a_file_without_a_stated_digest_is_refused_with_the_argument_to_add(
    argument: str, name: str, folder: Path
) -> None:
    (folder / "given" / name).write_bytes(FILE)
    done = take(argument, "", folder)
    assert done.returncode != 0
    assert f"--build-arg {argument}={RIGHT}" in done.stderr
    assert taken(folder) == []


@pytest.mark.parametrize("argument", GIVEN)
def test_a_digest_without_a_file_is_refused_and_nothing_is_built_instead(argument: str, folder: Path) -> None:
    done = take(argument, RIGHT, folder)
    assert done.returncode != 0
    assert "no file was given" in done.stderr
    assert "made" not in done.stdout


def test_two_wheels_are_refused(folder: Path) -> None:
    for version in (1, 2):
        (folder / "given" / f"llama_cpp_python-0.0.{version}-py3-none-any.whl").write_bytes(FILE)
    done = take("WHEELHOUSE_DIGEST", RIGHT, folder)
    assert done.returncode != 0
    assert "one file may be given" in done.stderr


@pytest.mark.parametrize("argument", GIVEN)
def test_with_nothing_given_the_build_makes_its_own(argument: str, folder: Path) -> None:
    done = take(argument, "", folder)
    assert (done.returncode, done.stdout.strip()) == (0, "made")
