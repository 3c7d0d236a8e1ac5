"""PODS AS PROCESSES: runs the pods of a manifest like a kubelet, as processes with their own mounts and networks.

`spec`, `fields`, `manifest` and `status` are pure. `container_init` is the program that becomes a container. The daemon
is `podrunner`, beside this room.
"""
