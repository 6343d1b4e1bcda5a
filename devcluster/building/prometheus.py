"""Builds Prometheus, on which a test runs the queries of the dashboard and the alerts; no cluster needs it."""

from devcluster.building.binaries import Tool

PROMETHEUS = Tool(
    "prometheus",
    {name: f"github.com/prometheus/prometheus/cmd/{name}" for name in ("prometheus", "promtool")},
    tags="remove_all_sd",  # without the clients of the clouds in which it could look for targets
)
