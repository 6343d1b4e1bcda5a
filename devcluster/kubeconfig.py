"""Writes and reads kubeconfig files. Certificates and keys are embedded, so that a file can be moved."""

import base64
import os
import ssl
import tempfile
from pathlib import Path
from typing import Any

import yaml

from devcluster.errors import DevclusterError


def render(*, context: str, server: str, authority: bytes, certificate: bytes, key: bytes) -> str:
    """Return the text of a kubeconfig with one cluster, one user and one context."""
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": context, "cluster": {"server": server, "certificate-authority-data": _base64(authority)}}
            ],
            "users": [
                {
                    "name": context,
                    "user": {"client-certificate-data": _base64(certificate), "client-key-data": _base64(key)},
                }
            ],
            "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
            "current-context": context,
        },
        sort_keys=False,
    )


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def client_of(path: Path) -> tuple[str, ssl.SSLContext]:
    """Return the address HOST:PORT of the API server in a kubeconfig from `render`, and the TLS context of its user."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
    context = ssl.create_default_context(cadata=_decoded(cluster["certificate-authority-data"]).decode())
    with tempfile.NamedTemporaryFile() as pair:  # readable by its owner alone, as the kubeconfig is
        pair.write(_decoded(user["client-certificate-data"]) + _decoded(user["client-key-data"]))
        pair.flush()
        context.load_cert_chain(pair.name)
    return cluster["server"].removeprefix("https://"), context


def current_context(path: Path) -> str:
    """Return the name of a kubeconfig's current context."""
    try:
        content: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise DevclusterError(
            f"the kubeconfig {path} cannot be read", remedy="set KUBECONFIG to a valid file"
        ) from error
    context = content.get("current-context") if isinstance(content, dict) else None
    if not context:
        raise DevclusterError(f"the kubeconfig {path} has no current context", remedy="kubectl config use-context NAME")
    return str(context)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decoded(text: str) -> bytes:
    return base64.b64decode(text)
