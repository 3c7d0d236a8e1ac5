"""The kubelet's configuration file and flags: standalone on the bootstrap node, registered on the others."""

from collections.abc import Sequence
from typing import Any, Final

import yaml

from umbilical.lab.kubelet import containerd
from umbilical.lab.runner import MANIFESTS

PATH: Final = "/etc/kubernetes/kubelet-config.yaml"
ROOT_DIRECTORY: Final = "/var/lib/kubelet"
LOGS_DIRECTORY: Final = "/var/log/pods"
CLIENT_AUTHORITY: Final = "/etc/kubernetes/pki/ca.crt"
SERVING_CERTIFICATE: Final = "/etc/kubernetes/pki/kubelet.crt"
SERVING_KEY: Final = "/etc/kubernetes/pki/kubelet.key"
HEALTH_PORT: Final = 10248
STATUS_PORT: Final = 10255
KERNEL_SETTINGS: Final = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}
"""What a kubelet sets in /proc/sys for the whole machine (pkg/kubelet/cm, setupKernelTunables)."""

_COMMON: Final[dict[str, Any]] = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "containerRuntimeEndpoint": f"unix://{containerd.SOCKET}",
    "staticPodPath": MANIFESTS,
    "podLogsDir": LOGS_DIRECTORY,
    "volumePluginDir": f"{ROOT_DIRECTORY}/volume-plugins",
    # The machine under the lab may have cgroups v1 or v2, and swap.
    "failCgroupV1": False,
    "failSwapOn": False,
    "cgroupDriver": "cgroupfs",
    # All nodes share the machine: none may reserve resources, or evict because of others.
    "enforceNodeAllocatable": [],
    "evictionHard": {},
    "localStorageCapacityIsolation": False,
    "imageMaximumGCAge": "0s",
    "imageGCHighThresholdPercent": 100,
    "makeIPTablesUtilChains": False,
    # Scenarios wait for manifests; the default is 20 s.
    "fileCheckFrequency": "1s",
    "syncFrequency": "10s",
    "nodeStatusUpdateFrequency": "10s",
    "shutdownGracePeriod": "0s",
    "containerLogMaxSize": "50Mi",
    # The runner reads pod status here without credentials, even if the API is unreachable.
    "readOnlyPort": STATUS_PORT,
    "healthzBindAddress": "127.0.0.1",
    "healthzPort": HEALTH_PORT,
}
_NODES_OWN: Final = frozenset({"staticPodPath", "podLogsDir", "volumePluginDir", "containerLogMaxSize"})
"""Settings that a node's own configuration contains."""
# Drop-ins are merged into the defaults, so an empty table would change nothing.
_NEVER: Final = dict.fromkeys(
    ("imagefs.available", "imagefs.inodesFree", "memory.available", "nodefs.available", "nodefs.inodesFree"), "0%"
)
_STANDALONE: Final[dict[str, Any]] = {
    # Without an API the webhook defaults would stop the kubelet at start.
    "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
}
_REGISTERED: Final[dict[str, Any]] = {
    "authentication": {
        "anonymous": {"enabled": False},
        "webhook": {"enabled": True},
        "x509": {"clientCAFile": CLIENT_AUTHORITY},
    },
    "authorization": {"mode": "Webhook"},
    "tlsCertFile": SERVING_CERTIFICATE,
    "tlsPrivateKeyFile": SERVING_KEY,
}


def configuration(cgroup: str, addresses: Sequence[str], *, is_registered: bool) -> bytes:
    """Return the file; `cgroup` is the node's, without a leading slash."""
    content = {
        **_COMMON,
        **(_REGISTERED if is_registered else _STANDALONE),
        "cgroupRoot": f"/{cgroup}",
        # `::` accepts IPv4 too, but needs IPv6 on the machine.
        "address": "::" if any(":" in address for address in addresses) else "0.0.0.0",
    }
    return yaml.safe_dump(content, sort_keys=True).encode()


def machine_drop_in(cgroup: str) -> bytes:
    """Return the drop-in (`--config-dir`) that adapts a kubelet's configuration to the machine under the lab."""
    kept = {name: value for name, value in _COMMON.items() if name not in _NODES_OWN}
    return yaml.safe_dump({**kept, "evictionHard": _NEVER, "cgroupRoot": f"/{cgroup}"}, sort_keys=True).encode()


def command(node: str, addresses: Sequence[str], kubeconfig: str | None) -> list[str]:
    flags = [
        f"--config={PATH}",
        f"--hostname-override={node}",
        f"--node-ip={','.join(addresses)}",
        f"--root-dir={ROOT_DIRECTORY}",
        f"--cert-dir={ROOT_DIRECTORY}/pki",
        "--v=2",
    ]
    return ["kubelet", *flags, *([f"--kubeconfig={kubeconfig}"] if kubeconfig else [])]
