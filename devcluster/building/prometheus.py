"""Prometheus, which no cluster needs: a test of delivery runs the queries of the dashboard and of the alerts on it."""

from devcluster.building.binaries import Tool

PROMETHEUS = Tool(
    "prometheus",
    {name: f"github.com/prometheus/prometheus/cmd/{name}" for name in ("prometheus", "promtool")},
    tags="remove_all_sd",  # without the clients of the clouds in which it could look for targets
)
