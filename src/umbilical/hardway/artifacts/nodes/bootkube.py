"""bootkube.sh of the bootstrap node, which systemd runs until it succeeds once."""

from typing import Final

from umbilical.bootstrap.names import BOOTKUBE, NATIVE
from umbilical.bootstrap.shell.scripts import certificate_script, fill
from umbilical.bootstrap.spec import MAX_CERTIFICATE_HOURS
from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.artifacts.nodes.merging import NodeParts, SystemdUnit
from umbilical.hardway.artifacts.static_pods.pods import CVO_FILE
from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.manifests.tree import SCRIPT_MODE

UNIT: Final = "bootkube.service"
STATE: Final = "/opt/openshift"
DONE: Final = f"{STATE}/.bootkube.done"
KUBECONFIG: Final = f"{layout.NODE_KUBECONFIGS}/localhost.kubeconfig"
SERVER_CA: Final = f"{layout.NODE_SECRETS}/{Bundle.SERVER_CA.value}.crt"
# The installer waits 20 minutes for the API, and 60 minutes until the bootstrap is complete: images are pulled.
API_SECONDS: Final = 1200
OBJECTS_SECONDS: Final = 3600


def add_bootkube(parts: NodeParts, inputs: Inputs) -> None:
    parts.files.add(BOOTKUBE, script(inputs), SCRIPT_MODE)
    if inputs.has_tunnel:
        parts.files.add(NATIVE.certificate_script, certificate_script(), SCRIPT_MODE)
    parts.directories.update({STATE: 0o755, layout.NODE_LATE_MANIFESTS: 0o755})
    parts.units.append(SystemdUnit(UNIT, unit()))


def script(inputs: Inputs) -> bytes:
    values = {
        "MANIFESTS": layout.NODE_MANIFESTS,
        "LATE_MANIFESTS": layout.NODE_LATE_MANIFESTS,
        "SERVER_CA": SERVER_CA,
        "API_SECONDS": str(API_SECONDS),
        "OBJECTS_SECONDS": str(OBJECTS_SECONDS),
        "TUNNEL_PKI": layout.TUNNEL_PKI,
        "ADDRESS": str(inputs.cluster.bootstrap.address),
        "CERTIFICATE_SCRIPT": NATIVE.certificate_script,
        "CERTIFICATE_HOURS": str(MAX_CERTIFICATE_HOURS),
        "KUBECONFIG": KUBECONFIG,
        "VERSION": inputs.payload.version,
        "CVO_POD": CVO_FILE,
        "DONE": DONE,
    }
    true_here = {"HAS_TUNNEL": inputs.has_tunnel, "IS_OPENSHIFT": inputs.cluster.is_openshift}
    return fill(__package__, "bootkube.sh", values, true_here)


def unit() -> str:
    return (
        "[Unit]\n"
        "Description=Bootstrap the control plane\n"
        "Wants=kubelet.service\n"
        "After=network-online.target kubelet.service\n"
        f"ConditionPathExists=!{DONE}\n"
        "\n"
        "[Service]\n"
        "Type=oneshot\n"
        f"ExecStart={BOOTKUBE}\n"
        "RemainAfterExit=true\n"
        "Restart=on-failure\n"
        "RestartSec=5s\n"
        "StandardOutput=journal+console\n"
        "StandardError=journal+console\n"
        "\n"
        "[Install]\n"
        "WantedBy=multi-user.target\n"
    )
