"""Runs one Kubernetes node in its own Linux namespaces, on machines with root and without Docker.

The processes of a node: `launch`, in the user's process, prepares files and starts `keeper`, which outlives the user's
process if asked to. The keeper starts `init` as the first process of new namespaces. Init mounts file systems, builds
the network, starts the components and watches them. Inside the namespaces all files lie below one fixed path, so
configuration does not depend on where the state directory is.
"""
