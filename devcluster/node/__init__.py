"""One Kubernetes node in its own namespaces, for Linux machines with root and without Docker.

`launch` (in the user's process) prepares files and starts `keeper`, which outlives it when asked to. The keeper starts
`init` as the first process of new namespaces; init builds mounts and network, starts the components and watches them.
Inside, everything lies below one fixed path, so configuration does not depend on where the state directory is.
"""
