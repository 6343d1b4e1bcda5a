"""The process around the controller: settings, watches of kopf, certificates, logs."""

import asyncio
import json
import logging
import ssl
from collections.abc import Iterable, Sequence, Sized
from itertools import islice
from pathlib import Path
from typing import Any

import kopf
import pytest
import structlog
from kopf._cogs.clients import watching
from kopf._core.reactor import queueing
from kubernetes.aio.client import ApiClient

from memory_operator.clients import connection
from memory_operator.clients.kube import KINDS
from memory_operator.controller import handlers
from memory_operator.controller.cache import WATCHED, WATCHED_OF_CNPG, ObjectCache
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


def registered(watched: Sequence[str], kept: Sequence[str] = ()) -> kopf.OperatorRegistry:
    router = handlers.EventRouter(WorkQueue(lambda: 0.0))
    cache, ended = ObjectCache(), asyncio.Event()
    return handlers.build_registry(router, cache, watched=watched, kept=kept, namespaces=(), ended=ended)


def test_kopf_is_set_up_to_write_nothing() -> None:
    settings = handlers.kopf_settings(scan=True)
    assert not settings.posting.enabled
    assert settings.peering.standalone
    kinds = (*WATCHED, *WATCHED_OF_CNPG)
    registry = registered(kinds, kinds)
    assert not list(registry._changing.get_all_handlers()), "change handlers would add annotations and finalizers"
    assert not list(registry._spawning.get_all_handlers())
    for handlers_of in (registry._watching, registry._indexing):
        selectors = [str(handler.selector).lower() for handler in handlers_of.get_all_handlers()]
        assert len(selectors) == len(kinds)
        assert not [selector for selector in selectors if "secret" in selector], "Secrets are never watched"


def test_an_operator_bound_to_namespaces_watches_nothing_outside_them() -> None:
    assert not [h for h in registered(WATCHED)._watching.get_all_handlers() if "postgresql.cnpg.io" in str(h.selector)]
    assert handlers.kopf_settings(scan=False).scanning.disabled


def test_only_our_own_children_are_watched() -> None:
    selectors = handlers.kopf_settings(scan=True).watching.label_selectors
    for kind in WATCHED:
        group, _, plural = KINDS[kind]
        ours = [] if kind == "MemoryIndex" else ["app.kubernetes.io/managed-by=memory-operator"]
        assert selectors.get((group, plural), []) == ours or selectors[group, plural] == ours[0]


def test_a_watch_that_is_refused_is_begun_again_for_ever_and_logged_once() -> None:
    """A deleted namespace takes its Role with it; kopf would end the process after nine attempts, and log each."""
    backoffs = handlers.kopf_settings(scan=False).networking.error_backoffs
    assert isinstance(backoffs, Iterable)
    assert not isinstance(backoffs, Sized), "kopf gives up after a number of attempts that is known"
    assert max(islice(backoffs, 1000)) <= 30
    moment = 0.0
    repeated = handlers.RepeatedErrors(lambda: moment)
    record = logging.LogRecord(
        "kopf", logging.ERROR, "", 0, "Request attempt #%d failed; will retry: GET /pods", (1,), None
    )
    assert [repeated.filter(record) for _ in range(3)] == [True, False, False]
    record.args = (2,)
    assert not repeated.filter(record)
    moment = handlers.REPEAT_SECONDS
    assert repeated.filter(record)
    assert all(repeated.filter(logging.LogRecord("kopf", 30, "", 0, "Not enough permissions", (), None)) for _ in "ab")


def test_the_log_of_kopf_that_names_failed_attempts_is_the_one_that_is_filtered() -> None:
    handlers.log_failures_once()
    assert not queueing.logger.isEnabledFor(logging.WARNING)
    assert any(isinstance(one, handlers.RepeatedErrors) for one in watching.logger.filters)


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


class Uncopyable(dict[str, Any]):
    """A part of an object that says when it is copied."""

    def __deepcopy__(self, memo: Any) -> Any:
        raise AssertionError("it was copied")


@pytest.mark.finding("security S2")
def test_kopf_copies_no_object_and_writes_nothing_down() -> None:
    """Whoever may create objects decides how large they are, and a copy keeps the event loop."""
    kept = handlers.kopf_settings(scan=False).persistence
    body, patch = kopf.Body({"metadata": Uncopyable(annotations={"x": "y"}), "spec": Uncopyable(a=1)}), kopf.Patch()
    essence = kept.diffbase_storage.build(body=body, extra_fields=None)
    assert kept.progress_storage.clear(essence=essence) is essence
    assert kept.diffbase_storage.fetch(body=body) is None
    kept.diffbase_storage.store(body=body, patch=patch, essence=essence)
    key = kopf.HandlerId("h")
    assert kept.progress_storage.fetch(key=key, body=body) is None
    kept.progress_storage.store(key=key, record={}, body=body, patch=patch)
    kept.progress_storage.touch(body=body, patch=patch, value="now")
    kept.progress_storage.purge(key=key, body=body, patch=patch)
    assert not patch
