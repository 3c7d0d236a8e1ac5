"""Names of the tunnel's files and functions: the installer's own, those that we inject, and those of the first plan.

Ours and the installer's never overlap: an installer with its tunnel switched off still writes files with its own names.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class TunnelNames:
    """Paths on the bootstrap node, by role, and the functions of the shell library (empty: there are none)."""

    egress: str
    override: str
    server_pod: str
    namespace: str
    agent_secret: str
    agent_daemon_set: str
    library: str
    certificate_script: str
    setup_function: str
    manifests_function: str
    cleanup_function: str
    pki_directory: str
    """Where the node creates the certificates."""

    @property
    def override_in_render_container(self) -> str:
        """The path in the operator's render container, where /opt/openshift is /assets."""
        return self.override.replace("/opt/openshift/", "/assets/", 1)


NATIVE: Final = TunnelNames(
    egress="/opt/openshift/egress-selector-config.yaml",
    override="/opt/openshift/konnectivity-config-override.yaml",
    server_pod="/opt/openshift/konnectivity-server-pod.yaml",
    namespace="/opt/openshift/konnectivity-namespace.yaml",
    agent_secret="/opt/openshift/konnectivity-agent-certs-secret.yaml",
    agent_daemon_set="/opt/openshift/konnectivity-agent-daemonset.yaml",
    library="/usr/local/bin/konnectivity.sh",
    certificate_script="/usr/local/bin/konnectivity-certs.sh",
    setup_function="konnectivity_setup",
    manifests_function="konnectivity_manifests",
    cleanup_function="konnectivity_cleanup",
    pki_directory="/opt/openshift/tls/konnectivity",
)
OWN: Final = TunnelNames(
    egress="/opt/openshift/umbilical/egress-selector-config.yaml",
    override="/opt/openshift/umbilical/konnectivity-config-override.yaml",
    server_pod="/opt/openshift/umbilical/konnectivity-server-pod.yaml",
    namespace="/opt/openshift/umbilical/konnectivity-namespace.yaml",
    agent_secret="/opt/openshift/umbilical/konnectivity-agent-certs-secret.yaml",
    agent_daemon_set="/opt/openshift/umbilical/konnectivity-agent-daemonset.yaml",
    library="/usr/local/bin/umbilical-konnectivity.sh",
    certificate_script="/usr/local/bin/umbilical-konnectivity-certs.sh",
    setup_function="umbilical_setup",
    manifests_function="umbilical_manifests",
    cleanup_function="umbilical_cleanup",
    # Not under tls/: cluster-bootstrap copies that whole directory into kube-apiserver's pod, keys included.
    pki_directory="/opt/openshift/umbilical/pki",
)
BOOTKUBE: Final = "/usr/local/bin/bootkube.sh"
STATIC_POD: Final = "/etc/kubernetes/manifests/konnectivity-server-pod.yaml"
INLINE: Final = TunnelNames(
    egress="/opt/openshift/egress-selector-config.yaml",
    # The plan took one file for both.
    override="/opt/openshift/egress-selector-config.yaml",
    # Written by here-documents of bootkube.sh, with these names as targets.
    server_pod=STATIC_POD,
    namespace="manifests/konnectivity-namespace.yaml",
    agent_secret="manifests/konnectivity-agent-certs.yaml",
    agent_daemon_set="manifests/konnectivity-agent-daemonset.yaml",
    library=BOOTKUBE,
    certificate_script=BOOTKUBE,
    setup_function="",
    manifests_function="",
    cleanup_function="",
    pki_directory="/opt/openshift/tls/konnectivity",
)
"""The tunnel of the first plan: shell blocks in bootkube.sh itself."""
# `undo` and `verify` recognise a patched config by this file.
RECEIPT: Final = "/opt/openshift/umbilical/receipt.json"

RELEASE_IMAGE: Final = "/usr/local/bin/release-image.sh"
SERVICE_RECORD: Final = "/usr/local/bin/bootstrap-service-record.sh"
EGRESS_FILE: Final = "egress-selector-config.yaml"
"""File name next to kube-apiserver's own configuration."""
STAGES: Final = (
    "konnectivity-certs",
    "konnectivity-server-bootstrap",
    "konnectivity-agent-manifest",
    "konnectivity-cleanup",
)
"""bootkube steps in the service record, with the installer's names: `openshift-install analyze` knows these."""
BOOTSTRAP_ONLY: Final = ("openshift.io/bootstrap-only", "true")
AGENT_NAME: Final = "konnectivity-agent"
AGENT_SECRET: Final = "konnectivity-agent-certs"
SERVER_NAME: Final = "konnectivity-server"
