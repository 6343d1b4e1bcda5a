"""The process around the controller: settings, watches of kopf, certificates, logs."""

import json
import logging
import ssl
from pathlib import Path

import kopf
import pytest
import structlog
from kubernetes.aio.client import ApiClient

from memory_operator.clients import connection
from memory_operator.controller import handlers
from memory_operator.controller.queue import WorkQueue
from memory_operator.settings import Settings
from memory_recall import logs


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_OPERATOR_IMAGES_OPERATOR", "reg/op:1")
    monkeypatch.setenv("MEMORY_OPERATOR_NAMESPACES", "a, b,")
    monkeypatch.setenv("MEMORY_OPERATOR_RESYNC_SECONDS", "7")
    settings = Settings()
    assert (settings.images.operator, settings.namespaces, settings.resync_seconds) == ("reg/op:1", ("a", "b"), 7)
    monkeypatch.setenv("MEMORY_OPERATOR_NAMESPACES", "")
    assert Settings().namespaces == ()


def test_kopf_is_set_up_to_write_nothing() -> None:
    settings = handlers.kopf_settings(namespaced=False)
    assert not settings.posting.enabled
    assert settings.peering.standalone
    registry = handlers.build_registry(handlers.EventRouter(WorkQueue(lambda: 0.0)), namespaced=False)
    assert not list(registry._changing.get_all_handlers()), "change handlers would add annotations and finalizers"
    assert not list(registry._spawning.get_all_handlers())
    watched = [str(handler.selector).lower() for handler in registry._watching.get_all_handlers()]
    assert len(watched) == 6
    assert not [selector for selector in watched if "secret" in selector], "Secrets are never watched"


def test_an_operator_bound_to_namespaces_watches_nothing_outside_them() -> None:
    registry = handlers.build_registry(handlers.EventRouter(WorkQueue(lambda: 0.0)), namespaced=True)
    assert not [h for h in registry._watching.get_all_handlers() if "postgresql.cnpg.io" in str(h.selector)]
    assert handlers.kopf_settings(namespaced=True).scanning.disabled


def test_certificates_without_the_newest_extensions_are_accepted_and_still_verified() -> None:
    info = connection.relaxed_connection(kopf.ConnectionInfo(server="https://api:6443", token="t"))
    assert info is not None
    context = info.as_ssl_context()
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


async def test_our_own_requests_accept_these_certificates_too_and_use_no_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kubeconfig(monkeypatch, tmp_path, {"cluster": "c", "user": "u"})
    found = await connection.configuration()
    async with ApiClient(found) as client:
        context = client.rest_client.ssl_context
        assert not context.verify_flags & ssl.VERIFY_X509_STRICT
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.check_hostname
    assert (found.host, found.client_session_kwargs) == ("https://api:6443", {"trust_env": False})


async def test_a_configuration_without_a_context_is_refused_with_the_cause(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kubeconfig(monkeypatch, tmp_path, None)
    with pytest.raises(connection.NoConnectionError, match="context"):
        await connection.configuration()


def kubeconfig(monkeypatch: pytest.MonkeyPatch, folder: Path, context: dict[str, str] | None) -> None:
    """Let the configuration come from a file of this test."""
    found = {
        "clusters": [{"name": "c", "cluster": {"server": "https://api:6443"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        **({"contexts": [{"name": "x", "context": context}], "current-context": "x"} if context else {}),
    }
    file = folder / "config"
    file.write_text(json.dumps(found))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr("kubernetes.aio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(file))


def test_library_logs_below_warnings_are_off(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    handlers_before, level_before = root.handlers[:], root.level
    try:
        logs.configure(fmt="json", level="debug", package="memory_operator")
        assert not logging.getLogger("kopf.objects").isEnabledFor(logging.INFO)
        assert logging.getLogger("memory_operator.controller.controller").isEnabledFor(logging.DEBUG)
    finally:
        root.handlers[:] = handlers_before
        root.setLevel(level_before)
        structlog.reset_defaults()
