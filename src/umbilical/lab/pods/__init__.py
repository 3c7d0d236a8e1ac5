"""PODS AS PROCESSES: what a kubelet does with a manifest, by processes with mounts and networks of their own.

Pure are `spec`, `fields`, `manifest` and `status`: they read and decide. `container_init` is the program that becomes
a container. `podrunner` beside this room is the daemon.
"""
