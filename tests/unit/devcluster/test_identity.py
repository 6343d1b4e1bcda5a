"""Certificates and kubeconfig files of a cluster."""

import base64
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from devcluster import kubeconfig
from devcluster.errors import DevclusterError
from devcluster.node import pki
from devcluster.node.layout import FRONT_PROXY
from tests.support.yaml_text import read_yaml


def test_clients_carry_user_and_group_and_are_signed_by_the_authority() -> None:
    authority = pki.Authority()
    certificate = x509.load_pem_x509_certificate(authority.client("system:node:node1", "system:nodes").certificate)
    assert certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == "system:node:node1"
    assert certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)[0].value == "system:nodes"
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate))


def test_the_server_is_known_by_the_address_that_the_host_uses_and_by_the_service_address() -> None:
    certificate = x509.load_pem_x509_certificate(pki.Authority().server("kube-apiserver").certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = {str(address) for address in names.get_values_for_type(x509.IPAddress)}
    assert {"127.0.0.1", "10.96.0.1", "10.244.0.1"} <= addresses
    assert "kubernetes.default.svc" in names.get_values_for_type(x509.DNSName)


def test_every_file_that_components_read_is_written(tmp_path: Path) -> None:
    clients = pki.write(tmp_path / "pki")
    written = {path.name for path in (tmp_path / "pki").iterdir()}
    assert {"ca.crt", "api.crt", "api.key", "kubelet-server.crt", "kubelet-client.key", "sa.key", "sa.pub"} <= written
    assert {"front-proxy-ca.crt", "front-proxy.crt", "front-proxy.key"} <= written
    assert set(clients) == set(pki.CLIENTS)


def test_who_speaks_for_others_to_an_api_server_is_known_by_an_authority_of_its_own(tmp_path: Path) -> None:
    """A client of the cluster's authority could otherwise name itself to that server as anybody."""
    pki.write(tmp_path / "pki")
    proxy, authority, clients = (
        x509.load_pem_x509_certificate((tmp_path / "pki" / name).read_bytes())
        for name in ("front-proxy.crt", "front-proxy-ca.crt", "ca.crt")
    )
    assert proxy.issuer == authority.subject != clients.subject
    assert FRONT_PROXY in proxy.subject.rfc4514_string()


def test_a_kubeconfig_stands_alone_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "kubeconfig"
    text = kubeconfig.render(context="c", server="https://127.0.0.1:1", authority=b"a", certificate=b"b", key=b"k")
    kubeconfig.write_private(path, text)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert kubeconfig.current_context(path) == "c"
    content = read_yaml(path.read_text(encoding="utf-8"))
    assert base64.b64decode(content["users"][0]["user"]["client-key-data"]) == b"k"


@pytest.mark.parametrize("content", [None, "{", "{}", "[]"])
def test_an_unusable_kubeconfig_is_named(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(DevclusterError, match=str(path)):
        kubeconfig.current_context(path)
