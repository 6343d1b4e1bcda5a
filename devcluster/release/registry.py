"""Pushes artifacts to a registry, and signs them there.

The programs read the registry's credentials from Docker's configuration (`crane auth login`, `docker login`), and the
certificate authorities to trust from the machine, or from the file in SSL_CERT_FILE.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from devcluster import processes
from devcluster.building.binaries import Binaries
from devcluster.errors import CommandError, DevclusterError
from devcluster.release.artifacts import Artifact

# Without services: signatures are made with a key of your own, and no public log learns the names of what is signed.
_NO_SERVICES = (
    '{"mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json", "rekorTlogConfig": {}, "tsaConfig": {}}\n'
)
_SECONDS = 900
_MISSING = re.compile(r"MANIFEST_UNKNOWN|NAME_UNKNOWN|404 Not Found|not found", re.IGNORECASE)
_LOGIN = "log in with `crane auth login HOST`, or trust its authority by SSL_CERT_FILE"


class Registry:
    """A registry below a prefix (`registry.example/memory-index`), to which artifacts are pushed."""

    def __init__(self, prefix: str, helm: Path, binaries: Binaries) -> None:
        self.prefix = prefix
        self._helm = helm
        self._binaries = binaries

    def reference(self, name: str, tag: str) -> str:
        """Return the reference of an artifact with this name and tag."""
        return f"{self.prefix}/{name}:{tag}"

    def digest(self, reference: str) -> str:
        """Return the digest of what a reference stands for, or an empty string if the registry has no such thing."""
        try:
            return self._crane("digest", reference).strip()
        except CommandError as error:
            if _MISSING.search(error.output):
                return ""
            raise

    def push_image(self, archive: Path, reference: str) -> str:
        """Push the image of an archive, and return its digest."""
        self._crane("push", archive, reference)
        return self._present(reference)

    def push_index(self, images: Sequence[Artifact], reference: str) -> str:
        """Push the list of the platforms of an image, and return its digest."""
        self._crane("index", "append", *(f"--manifest={one.by_digest}" for one in images), f"--tag={reference}")
        return self._present(reference)

    def push_chart(self, archive: Path, directory: str, reference: str) -> str:
        """Push a chart to a directory below the prefix, and return the digest of what is at `reference` then."""
        processes.run(
            [self._helm, "push", archive, f"oci://{self.prefix}/{directory}"], timeout=_SECONDS, remedy=_LOGIN
        )
        return self._present(reference)

    def push_files(self, files: Sequence[Path], reference: str, *, kind: str, created: str) -> str:
        """Push files of one directory as one artifact, and return its digest; `created` is a time in RFC 3339."""
        command = [
            *(self._binaries.path("oras"), "push", "--plain-http=false", "--no-tty", reference),
            *(f"--artifact-type={kind}", f"--annotation=org.opencontainers.image.created={created}"),
            *(file.name for file in files),
        ]
        processes.run(command, cwd=files[0].parent, timeout=_SECONDS, remedy=_LOGIN)
        return self._present(reference)

    def digest_of_archive(self, archive: Path) -> str:
        """Return the digest that the image of an archive has once it is pushed."""
        return self._crane("digest", f"--tarball={archive}").strip().rpartition("@")[2]

    def _present(self, reference: str) -> str:
        digest = self.digest(reference)
        if not digest:
            raise DevclusterError(f"the registry does not have {reference} although it was pushed")
        return digest

    def _crane(self, *arguments: object) -> str:
        return processes.run([self._binaries.path("crane"), *arguments], timeout=_SECONDS, remedy=_LOGIN)


class Signer:
    """Signs artifacts with a key, which may be a file, `env://VARIABLE`, or a URI of a key management service.

    cosign reads the key's password from COSIGN_PASSWORD, where it has one.
    """

    def __init__(self, key: str, cosign: Path, directory: Path) -> None:
        self._key = key
        self._cosign = cosign
        self._configuration = directory / "signing-config.json"
        self._configuration.write_text(_NO_SERVICES, encoding="utf-8")

    def public_key(self) -> str:
        """Return the public key, in PEM, by which signatures are verified."""
        return self._run("public-key", f"--key={self._key}")

    def sign(self, artifact: Artifact) -> None:
        """Attach a signature to an artifact's digest."""
        self._run("sign", "--yes", f"--key={self._key}", f"--signing-config={self._configuration}", artifact.by_digest)

    def attest(self, artifact: Artifact, kind: str, predicate: Path) -> None:
        """Attach a signed statement to an artifact's digest; `kind` is cosign's word, such as `cyclonedx`."""
        options = (f"--key={self._key}", f"--signing-config={self._configuration}", f"--type={kind}")
        self._run("attest", "--yes", *options, f"--predicate={predicate}", artifact.by_digest)

    def _run(self, *arguments: str) -> str:
        return processes.run(
            [self._cosign, *arguments], env=_password(), timeout=_SECONDS, remedy="check KEY and COSIGN_PASSWORD"
        )


def _password() -> Mapping[str, str]:
    """Return the variable with the key's password; without it cosign would wait for somebody to type it."""
    return {"COSIGN_PASSWORD": os.environ.get("COSIGN_PASSWORD", "")}
