"""Server or agent as a static pod: for the kubelet of a kubeadm control plane, or one without an API.

The pod sees the directories of its files, not single files: a mounted file would stay the old one after a renewal.
docs/recipes/kubeadm.md has the way to a cluster.
"""

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from umbilical.fault import RenderError
from umbilical.manifests.objects import IMAGE
from umbilical.manifests.static_pod import HostFile, PodComponent, PodMetadata, probe, static_pod
from umbilical.manifests.systemd_units import ServiceUnit, UnitOption
from umbilical.manifests.tree import AssetTree

MANIFESTS: Final = "/etc/kubernetes/manifests"
"""Where a kubelet usually looks for static pods (staticPodPath)."""
LEAST_DEPTH: Final = 2
"""Directories above it, such as /etc, belong to the system or to others."""
REQUESTS: Final = {"umbilical-server": ("100m", "64Mi"), "umbilical-agent": ("40m", "50Mi")}
"""As in the chart (docs/sizing.md)."""
START_SECONDS: Final = 120
PERIOD_SECONDS: Final = 10
ANSWER_SECONDS: Final = 5
_LOOPBACKS: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True)
class PodPlace:
    """What a static pod needs besides its unit."""

    image: str
    health_host: str
    """Empty: every address of the node."""
    health_port: int
    tier: str
    """Value of the label `tier`: kubeadm's own pods have `control-plane`."""


def daemon_pod(unit: ServiceUnit, place: PodPlace) -> AssetTree:
    """Return the manifest. Raises RenderError: the image is none, or a directory cannot be mounted."""
    if not IMAGE.fullmatch(place.image):
        why = "an image reference contains only letters, digits and . _ : / @ -"
        raise RenderError(
            "UMB110", f"image {place.image} is not valid", why, f"umbilical {unit.command[1]} install --help"
        )
    cpu, memory = REQUESTS[unit.name]
    program, *first = unit.command
    component = PodComponent(
        name=unit.name,
        image=place.image,
        command=(program,),
        flags=(*first, *map(_argument, unit.options)),
        files=tuple(_mounts(unit)),
        probes=_probes(place),
        cpu=cpu,
        memory=memory,
        grace_seconds=round(unit.stop_seconds),
        scratch=("/tmp",),
        capabilities=("NET_BIND_SERVICE",) if unit.has_low_port else (),
    )
    tree = AssetTree()
    tree.add_yaml(f"{unit.name}.yaml", static_pod(component, place=PodMetadata(labels={"tier": place.tier})))
    return tree


def _argument(option: UnitOption) -> str:
    """Kubernetes replaces `$(NAME)` in arguments, and `$$` by `$`."""
    text = option.name if option.value is None else f"{option.name}={option.value}"
    return text.replace("$", "$$")


def _mounts(unit: ServiceUnit) -> Iterable[HostFile]:
    socket = posixpath.dirname(unit.socket_path)
    folders = sorted({posixpath.dirname(option.value or "") for option in unit.options if option.is_file} - {socket})
    for option in unit.options:
        if option.is_output:
            yield HostFile(
                "logs", _checked(posixpath.dirname(option.value or "")), "DirectoryOrCreate", is_writable=True
            )
    if socket:
        yield HostFile("socket", _checked(socket), "DirectoryOrCreate", is_writable=True)
    for number, folder in enumerate(folders):
        yield HostFile(f"files-{number}", _checked(folder), "Directory")


def _checked(folder: str) -> str:
    if len([part for part in folder.split("/") if part]) < LEAST_DEPTH:
        what = f"the pod would get all of {folder}"
        why = "it mounts the directories of its files and its socket, so that renewed files are seen"
        raise RenderError("UMB214", what, why, "put them into a directory of their own, such as /etc/umbilical/pki")
    return folder


def _probes(place: PodPlace) -> dict[str, dict[str, object]]:
    host = _LOOPBACKS.get(place.health_host, place.health_host)

    def asked(path: str, period: int, failures: int) -> dict[str, object]:
        return probe("HTTP", host, place.health_port, path, period=period, failures=failures, timeout=ANSWER_SECONDS)

    return {
        "startupProbe": asked("/healthz", 2, START_SECONDS // 2),
        "livenessProbe": asked("/healthz", PERIOD_SECONDS, 3),
        # Shown only: nothing waits for it. A server is ready with its first agent, an agent with its first server.
        "readinessProbe": asked("/readyz", PERIOD_SECONDS, 2),
    }
