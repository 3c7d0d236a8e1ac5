"""Two nodes for kubeadm in a lab: a control plane without a way to pods and kubelets, and a worker.

kubeadm runs on a root file system, mount and network of the node. What it cannot have there comes from elsewhere: a
kubelet without systemd, kube-proxy as a process, images under the names that it asks for.
"""

import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.support.labs import wait_until

import peers
from umbilical.lab import binaries
from umbilical.lab.images import UNPRIVILEGED, Image
from umbilical.lab.kubelet import archives, containerd, kubelet_config, node_runtime
from umbilical.lab.kubelet.runner import CNI_CONFIG_PATH
from umbilical.lab.lab import CompletedCommand, Lab, UpRequest, up
from umbilical.lab.network import POD_BRIDGE
from umbilical.lab.state import RunnerKind
from umbilical.lab.topology import Topology, plan_topology
from umbilical.manifests.objects import DEFAULT_IMAGE, bridge_conflist

CONTROL_PLANE: Final = "control"
WORKER: Final = "worker"
PEERS: Final = (*binaries.KUBELET, "kubeadm", "coredns", "helm")
SYSTEM: Final = ("unshare", "nsenter", "nft", "containerd", "ctr", "runc", "curl")
HOME: Final = "/root"
ADMIN: Final = "/etc/kubernetes/admin.conf"
DROP_INS: Final = "/etc/kubernetes/kubelet.conf.d"
OF_THE_MACHINE: Final = "--ignore-preflight-errors=SystemVerification,ContainerRuntimeVersion,NumCPU,Mem,Swap"
"""Checks of the machine under the lab, which may have control groups v1 and an old containerd."""
_PREPARE: Final = "ln -s /run /var/run; echo 1 > /proc/sys/net/ipv4/ip_forward"
# What kubeadm's unit does, which systemd restarts until kubeadm has written the configuration.
_KUBELET: Final = f"""
config=/var/lib/kubelet/config.yaml
until [ -s $config ]; do sleep 0.2; done
. /var/lib/kubelet/kubeadm-flags.env
exec kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf \\
    --config=$config --config-dir={DROP_INS} $KUBELET_KUBEADM_ARGS
"""
KUBELET_PORT: Final = 10250
FIREWALL: Final = "kubelets"
POD_NETWORK: Final = "10.244.0.0/16"
SECONDS: Final = 240.0
# The lab's copy of /proc/sys may not be written; the machine's limits stay as they are.
_NO_LIMITS: Final = ("max-per-core=0", "min=0", "tcp-timeout-established=0s", "tcp-timeout-close-wait=0s")


def topology() -> Topology:
    """Return the addresses of docs/recipes/kubeadm.md."""
    plan = plan_topology(
        masters=1, workers=0, machine_network="10.0.0.0/24", pod_network=POD_NETWORK, service_network="10.96.0.0/12"
    )
    control_plane, worker = plan.nodes
    return replace(plan, nodes=(replace(control_plane, name=CONTROL_PLANE), replace(worker, name=WORKER)))


class KubeadmLab:
    """The nodes. containerd runs on both, and the kubelet as soon as kubeadm has configured it."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self._environment = {"KUBECONFIG": ADMIN}
        for node in (CONTROL_PLANE, WORKER):
            group = node_runtime.make_group(lab, node)
            node_runtime.start_containerd(lab, node)
            lab.write(node, f"{DROP_INS}/90-machine.conf", kubelet_config.machine_drop_in(group), 0o644)
            self.run(_PREPARE, node=node)
            lab.start(node, "kubelet", ["bash", "-c", _KUBELET])
        # `ctr` unpacks for overlayfs unless told otherwise; not every file system has that.
        self._environment["CONTAINERD_SNAPSHOTTER"] = containerd.choose_snapshotter(lab, CONTROL_PLANE)

    def run(self, script: str, *, stdin: bytes | None = None, node: str = CONTROL_PLANE) -> str:
        """Run lines of a page as root in the home directory. Raises LabError: one failed."""
        return self.attempt(script, stdin=stdin, node=node).check().text

    def attempt(self, script: str, *, stdin: bytes | None = None, node: str = CONTROL_PLANE) -> CompletedCommand:
        command = ["bash", "-euo", "pipefail", "-c", f"cd {HOME}\n{script}"]
        return self.lab.exec(node, command, stdin=stdin, timeout_seconds=SECONDS, environment=self._environment)

    def write(self, name: str, text: str, node: str = CONTROL_PLANE) -> None:
        self.lab.write(node, name if name.startswith("/") else f"{HOME}/{name}", text.encode())

    def read(self, name: str) -> str:
        return self.lab.read(CONTROL_PLANE, name if name.startswith("/") else f"{HOME}/{name}").decode()

    def give(self, folder: Path, path: str) -> None:
        """Copy a folder of this machine into the home directory."""
        for file in folder.rglob("*"):
            if file.is_file():
                self.lab.write(CONTROL_PLANE, f"{HOME}/{path}/{file.relative_to(folder)}", file.read_bytes(), 0o644)

    def give_image(self, name: str) -> None:
        """Write an image of this source as the archive that `make image` would make; load it on the worker."""
        image = Image(
            DEFAULT_IMAGE, modules={"umbilical": "umbilical.cli.main"}, user=UNPRIVILEGED, entrypoint="umbilical"
        )
        archive = archives.image_archive(image, archives.cache_directory())
        root = self.lab.directory.node_root(CONTROL_PLANE)
        archive.write(root / HOME.lstrip("/") / name)
        node_runtime.load_image(self.lab, WORKER, root / HOME.lstrip("/") / name)

    def name_images(self, listed: str) -> None:
        """Give the lab's images the names that kubeadm asks for."""
        for reference in listed.split():
            program = reference.rpartition("/")[2].partition(":")[0]
            own = containerd.PAUSE_REFERENCE if program == containerd.PAUSE_PROGRAM else f"localhost/{program}:lab"
            containerd.ctr(self.lab, CONTROL_PLANE, "images", "tag", own, reference).check()

    def join_worker(self) -> None:
        """Let kubeadm join it; add a pod network, and kube-proxy, whose image is not there."""
        command = self.run("kubeadm token create --print-join-command").strip()
        self.run(f"{command} {OF_THE_MACHINE}", node=WORKER)
        networks = self.lab.topology.node(WORKER).pod_networks
        self.lab.write(WORKER, CNI_CONFIG_PATH, bridge_conflist("lab", POD_BRIDGE, networks), 0o644)
        user = "kubeadm kubeconfig user --config kubeadm.yaml --client-name system:kube-proxy"
        self.write("/etc/kubernetes/proxy.conf", self.run(user), WORKER)
        limits = (f"--conntrack-{limit}" for limit in _NO_LIMITS)
        flags = ("--kubeconfig=/etc/kubernetes/proxy.conf", "--proxy-mode=nftables", f"--cluster-cidr={POD_NETWORK}")
        self.lab.start(WORKER, "kube-proxy", ["kube-proxy", *flags, f"--hostname-override={WORKER}", *limits])
        wait_until(lambda: self.is_ready(f"node/{WORKER}"), SECONDS)

    def is_ready(self, thing: str) -> bool:
        return self.attempt(f"kubectl wait --for=condition=Ready --timeout=1s {thing}").exit_code == 0

    def close_kubelets(self) -> None:
        """Let the control plane reach no kubelet of another node."""
        worker = ipaddress.ip_address(self.lab.topology.node(WORKER).address)
        rule = f"ip daddr {worker} tcp dport {KUBELET_PORT} reject with tcp reset"
        self.lab.add_rules(CONTROL_PLANE, FIREWALL, f"chain out {{ type filter hook output priority 0; {rule}; }}")


@contextmanager
def kubeadm_lab(path: Path) -> Iterator[KubeadmLab]:
    # The newest in the cache may be of another version than the others.
    chosen = {name: peers.binary(name) or found for name, found in binaries.find(PEERS).items()}
    lab = up(UpRequest(path, "kubeadm", topology(), RunnerKind.KUBELET, chosen))
    try:
        yield KubeadmLab(lab)
    finally:
        lab.down()
