"""Pushes artifacts to a registry, and signs them there.

What is signed are the digests that the programs compute of what they send, not what the registry says that it has.

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
_MISSING = re.compile(r"MANIFEST_UNKNOWN|NAME_UNKNOWN|404 Not Found")
_UNSIGNED = "no signatures found"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
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
        return _digest_in(self._crane("push", archive, reference))

    def push_index(self, images: Sequence[Artifact], reference: str) -> str:
        """Push the list of the platforms of an image, and return its digest."""
        manifests = (f"--manifest={one.by_digest}" for one in images)
        return _digest_in(self._crane("index", "append", *manifests, f"--tag={reference}"))

    def push_chart(self, archive: Path, directory: str) -> str:
        """Push a chart to a directory below the prefix, and return its digest."""
        command = [self._helm, "push", archive, f"oci://{self.prefix}/{directory}"]
        return _digest_in(processes.run(command, timeout=_SECONDS, remedy=_LOGIN))

    def push_files(self, files: Sequence[Path], reference: str, *, kind: str, created: str) -> str:
        """Push files of one directory as one artifact, and return its digest; `created` is a time in RFC 3339."""
        command = [
            *(self._binaries.path("oras"), "push", "--plain-http=false", "--no-tty", reference),
            *(f"--artifact-type={kind}", f"--annotation=org.opencontainers.image.created={created}"),
            *("--format=go-template={{.digest}}", *(file.name for file in files)),
        ]
        return _digest_in(processes.run(command, cwd=files[0].parent, timeout=_SECONDS, remedy=_LOGIN))

    def digest_of_archive(self, archive: Path) -> str:
        """Return the digest that the image of an archive has once it is pushed."""
        return _digest_in(self._crane("digest", f"--tarball={archive}"))

    def _crane(self, *arguments: object) -> str:
        return processes.run([self._binaries.path("crane"), *arguments], timeout=_SECONDS, remedy=_LOGIN)


def _digest_in(output: str) -> str:
    """Return the digest that a program has printed of what it pushed.

    Raises:
        DevclusterError: it has printed none.
    """
    found = _DIGEST.findall(output)
    if not found:
        raise DevclusterError("no digest was printed of what was pushed", detail=processes.tail(output))
    return str(found[-1])


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

    def is_signed(self, reference: str) -> bool:
        """Return whether anybody has signed what is at this reference, which exists."""
        public = self._configuration.with_name("cosign.pub")
        public.write_text(self.public_key(), encoding="utf-8")
        try:
            self._run("verify", f"--key={public}", "--insecure-ignore-tlog=true", reference)
        except CommandError as error:
            return _UNSIGNED not in error.output
        return True

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
