"""Runs one Kubernetes node in its own Linux namespaces, on machines with root and without Docker.

A node consists of several processes. `launch` runs in the user's process, prepares files and starts `keeper`. The
keeper starts `init` as the first process of new namespaces. Init mounts file systems, builds the network, starts the
components and watches them. A detached node keeps running after the user's process has ended. Inside the namespaces all
files lie below one fixed path, so that no configuration depends on the place of the state directory.
"""
