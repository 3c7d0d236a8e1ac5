"""What the bootstrap node does by itself: a script, run once by systemd until it succeeds."""

import posixpath
from typing import Final

from umbilical.assets.hardway import layout
from umbilical.assets.hardway.inputs import Inputs
from umbilical.assets.hardway.nodes.parts import Parts, Unit
from umbilical.assets.names import BOOTKUBE, NATIVE
from umbilical.assets.shell.scripts import certificate_script, fill
from umbilical.assets.spec import MAX_CERTIFICATE_HOURS
from umbilical.assets.tree import SCRIPT_MODE, AssetTree
from umbilical.pki.hardway_set import Bundle

UNIT: Final = "bootkube.service"
STATE: Final = "/opt/openshift"
DONE: Final = f"{STATE}/.bootkube.done"
CVO_POD: Final = "cvo-bootstrap.yaml"
TUNNEL_POD_PREFIX: Final = "konnectivity-server"
SERVER_CA: Final = f"{layout.NODE_SECRETS}/{Bundle.SERVER_CA.value}.crt"
# An installer gives the API 20 minutes, and everything until the bootstrap node may go 60: images are pulled.
API_SECONDS: Final = 1200
OBJECTS_SECONDS: Final = 3600


def add_bootkube(parts: Parts, inputs: Inputs, made: AssetTree) -> None:
    parts.files.add(BOOTKUBE, script(inputs, made), SCRIPT_MODE)
    if inputs.has_tunnel:
        parts.files.add(NATIVE.certificate_script, certificate_script(), SCRIPT_MODE)
    parts.make_directories({STATE: 0o755, layout.NODE_LATE_MANIFESTS: 0o755})
    parts.units.append(Unit(UNIT, unit()))


def script(inputs: Inputs, made: AssetTree) -> bytes:
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
        "TUNNEL_POD": _tunnel_pod(inputs, made),
        "KUBECONFIG": f"{layout.NODE_KUBECONFIGS}/localhost.kubeconfig",
        "VERSION": inputs.payload.version,
        "CVO_POD": CVO_POD,
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


def _tunnel_pod(inputs: Inputs, made: AssetTree) -> str:
    folder = layout.late_static_pod(inputs.cluster.bootstrap, TUNNEL_POD_PREFIX)
    found = sorted(asset.path for asset in made if asset.path.startswith(folder))
    return posixpath.basename(found[0]) if found else f"{TUNNEL_POD_PREFIX}.yaml"
