"""Builds the programs that publish a release: crane for images, oras for files, cosign for signatures.

A test publishes to the registry that is built with them; a release goes to a registry of yours. All are Apache-2.0.
"""

from devcluster.building.binaries import Binaries, Tool
from devcluster.progress import Reporter
from devcluster.settings import Settings

RELEASE = Tool(
    "release",
    {
        "registry": "github.com/distribution/distribution/v3/cmd/registry",
        "crane": "github.com/google/go-containerregistry/cmd/crane",
        "cosign": "github.com/sigstore/cosign/v3/cmd/cosign",
        "oras": "oras.land/oras/cmd/oras",
    },
)


def ensure_programs(settings: Settings, reporter: Reporter) -> Binaries:
    """Build the programs of a release, and helm, unless they are built; return where they are."""
    Binaries(settings).ensure(reporter, ("helm",))
    binaries = Binaries(settings, (RELEASE,))
    binaries.ensure(reporter)
    return binaries
