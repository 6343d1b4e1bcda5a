"""Telemetry: metrics, logs and traces; none of them holds a caller's text."""
