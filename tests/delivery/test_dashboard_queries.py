"""The dashboard and the alerts of the chart work on a real Prometheus that holds what our own exporters export."""

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from math import isfinite
from typing import Any

import httpx
import pytest
import yaml

from devcluster.building.binaries import Binaries
from devcluster.building.prometheus import PROMETHEUS
from devcluster.progress import ConsoleReporter
from devcluster.settings import Settings
from tests.delivery.recorded_metrics import FAILING_FROM, MINUTES, openmetrics
from tests.unit.chart.conftest import CHART
from tests.unit.chart.test_chart_monitoring import alert_queries, dashboard_queries

pytestmark = pytest.mark.timeout(3600)  # the first run compiles Prometheus

# What Grafana puts in place of the dashboard's variables.
VARIABLES = {"$index": ".+", "$namespace": ".+", "$__rate_interval": "5m"}
PANELS = [(title, query) for title, query in dashboard_queries() if not query.startswith("label_values(") and query]
ALERTS = dict(alert_queries())


class Prometheus:
    """A server over the two recorded hours, of which `end` is the last moment."""

    def __init__(self, port: int, end: int) -> None:
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=10)
        self.end = end
        self.well = end - 60 * (MINUTES - FAILING_FROM + 1)

    def get(self, path: str, **parameters: object) -> Any:
        """Return the data of an answer."""
        answer = self._client.get(path, params={name: str(value) for name, value in parameters.items()})
        body = answer.raise_for_status().json()
        assert body["status"] == "success", body
        return body["data"]

    def query(self, expression: str, moment: int) -> list[Any]:
        """Return the series that a query yields at a moment."""
        return list(self.get("/query", query=expression, time=moment)["result"])

    def until(self, path: str, holds: Any) -> Any:
        """Return the data of the first answer of which `holds` is true."""
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            try:
                data = self.get(path)
            except httpx.HTTPError:  # it does not listen yet, or says that it is not ready
                data = None
            if data is not None and holds(data):
                return data
            time.sleep(0.1)
        raise AssertionError(path)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that has read the chart's alerts, over a database of what our processes exported."""
    binaries, folder = Binaries(Settings(), [PROMETHEUS]), tmp_path_factory.mktemp("prometheus")
    binaries.ensure(ConsoleReporter())
    end = int(time.time()) - 5
    (folder / "metrics.txt").write_text(openmetrics(end), encoding="utf-8")
    blocks = ["tsdb", "create-blocks-from", "openmetrics", folder / "metrics.txt", folder / "data"]
    subprocess.run([binaries.path("promtool"), *blocks], check=True, capture_output=True)
    alerts = CHART / "files" / "alerts.yaml"
    configuration = {"global": {"evaluation_interval": "1s"}, "rule_files": [str(alerts)]}
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration), encoding="utf-8")
    check = [binaries.path("promtool"), "check", "config", folder / "prometheus.yaml"]
    checked = subprocess.run(check, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    options = [f"--config.file={folder / 'prometheus.yaml'}", f"--storage.tsdb.path={folder / 'data'}"]
    with (folder / "log").open("w") as log:
        command = [binaries.path("prometheus"), *options, f"--web.listen-address=127.0.0.1:{port}"]
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        server = Prometheus(port, end)
        server.until("/status/runtimeinfo", lambda data: data["reloadConfigSuccess"])
        yield server
    finally:
        process.terminate()
        process.wait(30)


def filled(query: str) -> str:
    """Return a query with Grafana's variables replaced."""
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    return query


@pytest.mark.parametrize("query", [query for _, query in PANELS], ids=[title for title, _ in PANELS])
def test_a_panel_shows_something(prometheus: Prometheus, query: str) -> None:
    """Each query of the dashboard yields numbers while the cluster works, and while it fails."""
    assert "$" not in filled(query)
    for moment in (prometheus.well, prometheus.end):
        values = [float(series["value"][1]) for series in prometheus.query(filled(query), moment)]
        assert values
        assert all(map(isfinite, values))


@pytest.mark.parametrize("variable", ["memory_operator_object_condition, name", "memory_embedder_ready, namespace"])
def test_a_variable_of_the_dashboard_has_values(prometheus: Prometheus, variable: str) -> None:
    """The lists from which a viewer chooses are not empty."""
    assert f"label_values({variable})" in json.dumps(json.loads((CHART / "files" / "dashboard.json").read_text()))
    series, label = variable.split(", ")
    assert prometheus.get(f"/label/{label}/values", **{"match[]": series, "start": prometheus.well})


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_is_silent_while_all_is_well_and_speaks_when_it_is_not(prometheus: Prometheus, alert: str) -> None:
    """The expression of each alert is empty in the hour that goes well, and yields a series in the one that fails."""
    assert prometheus.query(ALERTS[alert], prometheus.well) == []
    assert prometheus.query(ALERTS[alert], prometheus.end) != []


def test_prometheus_evaluates_every_alert_and_writes_its_texts(prometheus: Prometheus, figures: dict[str, Any]) -> None:
    """Prometheus reads the rule file as the chart ships it, and the texts of the alerts name what they are about."""
    found = prometheus.until(
        "/alerts", lambda data: {each["labels"]["alertname"] for each in data["alerts"]} >= set(ALERTS)
    )
    rules = [rule for group in prometheus.get("/rules")["groups"] for rule in group["rules"]]
    assert {rule["name"]: rule["health"] for rule in rules} == dict.fromkeys(ALERTS, "ok")
    for alert in found["alerts"]:
        texts = " ".join(alert["annotations"].values())
        assert "error expanding" not in texts
        assert "<no value>" not in texts
    names = {each["labels"]["alertname"]: each["annotations"]["summary"] for each in found["alerts"]}
    assert "notes/notes" in names["MemoryIndexStalled"]
    figures |= {"dashboard_queries": len(PANELS), "alerts": len(ALERTS)}
