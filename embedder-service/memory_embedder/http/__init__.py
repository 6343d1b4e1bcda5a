"""The HTTP interface: routes, request models, guards."""
