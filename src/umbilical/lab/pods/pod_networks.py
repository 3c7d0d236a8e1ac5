"""Network namespaces of pods, with addresses from the node's pod networks, connected to the node's bridge."""

import asyncio
import hashlib
import ipaddress
from collections.abc import Callable
from pathlib import Path

from umbilical.fault import PodWaiting
from umbilical.lab.pods.node import IpNetwork, RunnerNode
from umbilical.lab.pods.spec import LabPod

IpInterface = ipaddress.IPv4Interface | ipaddress.IPv6Interface


class AddressPool:
    """Pod addresses of one node. The first address of each network is the node's own."""

    def __init__(self, networks: tuple[IpNetwork, ...]) -> None:
        self._networks = networks
        self._taken: dict[str, int] = {}

    @property
    def gateways(self) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
        return [network[1] for network in self._networks]

    def take(self, uid: str) -> list[IpInterface]:
        """Allocate the lowest free host number, the same in every IP family. Raises PodWaiting: none is free."""
        if not self._networks:
            raise _no_address("this node has no pod network; only pods with hostNetwork run here")
        taken = set(self._taken.values())
        # The last address of an IPv4 network is its broadcast.
        last = min(network.num_addresses for network in self._networks) - 2
        number = next((number for number in range(2, last + 1) if number not in taken), None)
        if number is None:
            raise _no_address(f"all addresses of {', '.join(map(str, self._networks))} are in use")
        self._taken[uid] = number
        return [ipaddress.ip_interface(f"{network[number]}/{network.prefixlen}") for network in self._networks]

    def give_back(self, uid: str) -> None:
        self._taken.pop(uid, None)


class PodNetworks:
    def __init__(self, node: RunnerNode) -> None:
        self._folder = node.folders.networks
        self._pool = AddressPool(node.pod_networks)

    def clear(self) -> None:
        """Remove the networks that an earlier runner left."""
        for path in self._folder.iterdir():
            from umbilical.lab.network import detach_pod

            detach_pod(path)

    async def attach(self, pod: LabPod) -> tuple[Path, tuple[str, ...]]:
        """Create the pod's network; return the namespace's file and the addresses. Raises PodWaiting: UMB835."""
        # Imported here: hostNetwork pods do not need netlink, which is slow to import.
        from umbilical.lab.network import attach_pod

        interfaces = self._pool.take(pod.uid)
        path = self._folder / pod.uid
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            await _to_the_end(lambda: attach_pod(path, link_name(pod.uid), interfaces, self._pool.gateways))
        except Exception:
            # Not on cancellation: then the network exists, and `detach` frees the address.
            self._pool.give_back(pod.uid)
            raise
        return path, tuple(str(interface.ip) for interface in interfaces)

    async def detach(self, pod: LabPod) -> None:
        from umbilical.lab.network import detach_pod

        path = self._folder / pod.uid
        if path.exists():
            await _to_the_end(lambda: detach_pod(path))
        self._pool.give_back(pod.uid)


async def _to_the_end(call: Callable[[], None]) -> None:
    """Call in a thread. Cancelling waits for it, because a thread cannot be cancelled."""
    done = asyncio.get_running_loop().run_in_executor(None, call)
    try:
        await asyncio.shield(done)
    except asyncio.CancelledError:
        await asyncio.wait([done])
        raise


def link_name(uid: str) -> str:
    """Name the node's end of a pod's veth pair; the kernel allows 15 characters."""
    return f"veth{hashlib.sha256(uid.encode()).hexdigest()[:10]}"


def _no_address(why: str) -> PodWaiting:
    remedy = "delete pods, or create a lab with a larger --pod-network"
    return PodWaiting("UMB835", "could not allocate a pod address", why, remedy, "ContainerCreating")
