"""kube-scheduler as a static pod."""

from typing import Any, Final

from umbilical.manifests.control_plane_spec import KUBECONFIG_DIRECTORY, ControlPlaneSpec
from umbilical.manifests.controller_manager import access_flags, loopback_probes
from umbilical.manifests.static_pod import Component, HostFile, static_pod

PROGRAM: Final = "kube-scheduler"
PORT: Final = 10259
KUBECONFIG: Final = f"{KUBECONFIG_DIRECTORY}/scheduler.kubeconfig"


def scheduler_pod(spec: ControlPlaneSpec) -> dict[str, Any]:
    return static_pod(
        Component(
            name=PROGRAM,
            image=spec.images.scheduler,
            flags=access_flags(spec, KUBECONFIG, PORT),
            files=(HostFile("kubeconfig", KUBECONFIG),),
            probes=loopback_probes(PORT),
            cpu="100m",
            memory="128Mi",
            grace_seconds=5 if spec.is_throwaway else 30,
        )
    )
