"""What is not known before the node runs stands as `${NAME}` in the YAML; the shell library fills it in by sed."""

from typing import Final

IMAGE: Final = "${KONNECTIVITY_IMAGE}"
NODE_IP: Final = "${BOOTSTRAP_NODE_IP}"
SERVER_FINGERPRINT: Final = "${SERVER_CERT_FINGERPRINT}"
AGENT_CERTIFICATE: Final = "${AGENT_CERT}"
AGENT_KEY: Final = "${AGENT_KEY}"
AUTHORITY: Final = "${CA_CERT}"
ALL: Final = (IMAGE, NODE_IP, SERVER_FINGERPRINT, AGENT_CERTIFICATE, AGENT_KEY, AUTHORITY)
