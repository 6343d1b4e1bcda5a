"""The HTTP interface: application, routes, request and response models, guards."""
