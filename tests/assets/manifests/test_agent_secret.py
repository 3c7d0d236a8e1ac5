"""The agents' Secret."""

import base64

from umbilical.assets.certificates import Certificates
from umbilical.assets.manifests import placeholders
from umbilical.assets.manifests.agent_secret import agent_secret
from umbilical.assets.spec import Shape, for_shape
from umbilical.pki.bundle import KeyPair


def test_what_the_node_makes_stands_as_placeholders() -> None:
    secret = agent_secret(for_shape(Shape.OPENSHIFT))
    assert secret["type"] == "Opaque"
    assert secret["data"] == {
        "tls.crt": placeholders.AGENT_CERTIFICATE,
        "tls.key": placeholders.AGENT_KEY,
        "ca.crt": placeholders.AUTHORITY,
    }


def test_given_certificates_are_in_it_and_the_servers_key_is_not() -> None:
    given = Certificates(b"ca", KeyPair(b"server", b"server-key"), KeyPair(b"agent", b"agent-key"))
    secret = agent_secret(for_shape(Shape.SEED), given)
    decoded = {name: base64.b64decode(value) for name, value in secret["data"].items()}
    assert decoded == {"tls.crt": b"agent", "tls.key": b"agent-key", "ca.crt": b"ca"}


def test_it_can_be_found_for_deletion() -> None:
    metadata = agent_secret(for_shape(Shape.SEED))["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("konnectivity-agent-certs", "kube-system")
    assert metadata["labels"]["openshift.io/bootstrap-only"] == "true"
