"""Resource definitions of other projects, out of the Go modules of their releases, pinned by hash.

The API server then checks our objects by the rules of the programs that are to read them.
"""

import json
import subprocess
import zipfile
from dataclasses import dataclass


@dataclass(frozen=True)
class Definition:
    """A file with a resource definition in a release; `checksum` is Go's hash of the whole module."""

    module: str
    version: str
    checksum: str
    path: str

    def text(self) -> str:
        """Return the definition as YAML; the module is downloaded unless Go's cache has it.

        Raises:
            AssertionError: the module could not be downloaded, or is another one than was pinned.
        """
        # Go ends with an error where the release asks for a newer Go, but has downloaded and hashed it all the same.
        command = ["go", "mod", "download", "-json", f"{self.module}@{self.version}"]
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
        found = json.loads(done.stdout or "{}")
        assert found.get("Sum") == self.checksum, found.get("Error", done.stderr)
        with zipfile.ZipFile(found["Zip"]) as archive:
            return archive.read(f"{self.module}@{self.version}/{self.path}").decode()


def _prometheus(kind: str) -> Definition:
    return Definition(
        "github.com/prometheus-operator/prometheus-operator",
        "v0.85.0",
        "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
        f"example/prometheus-operator-crd/monitoring.coreos.com_{kind}.yaml",
    )


PROMETHEUS = (_prometheus("podmonitors"), _prometheus("prometheusrules"))
FLUX = (
    Definition(
        "github.com/fluxcd/kustomize-controller",
        "v1.10.1",
        "h1:IjTnrkIy0ULJoTNC2ZKuMb32vkqj7dJ6zt6UqbTFxKA=",
        "config/crd/bases/kustomize.toolkit.fluxcd.io_kustomizations.yaml",
    ),
    *(
        Definition(
            "github.com/fluxcd/source-controller",
            "v1.10.1",
            "h1:vkYpgpLZu20LQ2UN4lPBdWH7sqTNdQ8FjcZD/HogN2E=",
            f"config/crd/bases/source.toolkit.fluxcd.io_{kind}.yaml",
        )
        for kind in ("gitrepositories", "ocirepositories")
    ),
)
ARGO_CD = (
    Definition(
        "github.com/argoproj/argo-cd/v3",
        "v3.6.1",
        "h1:OmhqeKiR3C//awbFrhQqFdtRI+Qiv17j8vqm3UkMj/g=",
        "manifests/crds/application-crd.yaml",
    ),
)
