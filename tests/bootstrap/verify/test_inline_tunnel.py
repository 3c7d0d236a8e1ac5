"""The first plan's own bootstrap.ign: shell blocks in bootkube.sh are recognised and judged like any tunnel."""

import pytest
from tests.support.inline_tunnel import AGENT_BLOCK, inline_config, inline_script
from tests.support.verify_subjects import failures, findings

from umbilical.bootstrap.patch.config_facts import TunnelState
from umbilical.bootstrap.patch.patch import patch
from umbilical.bootstrap.spec import Mode, Shape, for_shape
from umbilical.bootstrap.verify.facts import BootstrapFacts
from umbilical.checks.check import Outcome
from umbilical.fault import RenderError
from umbilical.ignition.document import IgnitionDocument

# No egress selector, the ignored key, the host's path of the socket, the default server port, the absent key of the
# root CA, and no copy of an egress file.
ITS_FAULTS = {"C1", "C2", "C3", "C5", "C9", "B4"}


def test_the_plans_own_config_is_recognised_with_shape_and_mode() -> None:
    facts = BootstrapFacts(inline_config())
    assert facts.has_tunnel
    assert (facts.found_state, facts.found_shape, facts.found_mode) == (
        TunnelState.INLINE,
        Shape.SEED,
        Mode.HTTP_CONNECT,
    )
    half = inline_script().replace("konnectivity-server-pod.yaml", "other.yaml")
    assert BootstrapFacts(inline_config(half)).found_state is TunnelState.INLINE


def test_its_faults_are_found_and_the_reason_why_its_egress_file_has_no_effect() -> None:
    assert failures(inline_config()) == ITS_FAULTS
    found = findings(inline_config())
    for check, words in (
        ("C1", "not apiserver.k8s.io/v1beta1 EgressSelectorConfiguration"),
        ("C2", "kube-apiserver ignores the key egressSelectorConfiguration"),
        ("C3", "is not in /etc/kubernetes/config, the mount in kube-apiserver's pod"),
        ("C5", "--server-port is not set; with a Unix socket the server accepts only 0"),
        ("C9", "it uses '/opt/openshift/tls/root-ca.key'"),
    ):
        assert words in found[check].evidence
    assert "without functions" in found["B1"].evidence
    assert found["F3"].outcome is Outcome.SKIPPED
    assert "bootkube.sh itself writes /etc/kubernetes/manifests/konnectivity-server-pod.yaml" in found["F3"].evidence


def test_the_state_of_the_plans_own_validation_lacks_certificates_and_the_servers_address() -> None:
    content = inline_config(inline_script(mutual_tls=False))
    assert failures(content) == ITS_FAULTS | {"F5", "C6", "C11"}
    found = findings(content)
    assert "--proxy-server-host is ''" in found["C6"].evidence
    assert "--ca-cert= is not in a mounted Secret" in found["C6"].evidence


@pytest.mark.parametrize(
    ("old", "new", "check", "words"),
    [
        ("    KONNECTIVITY_CERT_DIR=", "    CERT_DIR=", "C8", "uses ${KONNECTIVITY_CERT_DIR} and nothing sets it"),
        ("--proxy-server-port=8091", "--proxy-server-port=8092", "C6", "agents dial port '8092'"),
        ("kube-system\n  labels: {app: konnectivity-agent, openshift.io", "x\n  labels: {openshift.io", "C7", "differ"),
        ("--mode=http-connect", "--mode=grpc", "C4", "kube-apiserver uses 'HTTPConnect'"),
    ],
)
def test_the_blocks_are_judged_like_files(old: str, new: str, check: str, words: str) -> None:
    found = findings(inline_config(inline_script().replace(old, new, 1)), check)[check]
    assert found.outcome is Outcome.FAILED
    assert words in found.evidence


def test_an_address_that_is_found_after_its_use_is_told_with_the_line() -> None:
    script = inline_script()
    start = script.index("    BOOTSTRAP_NODE_IP=")
    end = script.index("\n", script.index("Detected bootstrap node IP")) + 1
    late = (script[:start] + script[end:]).replace(AGENT_BLOCK, script[start:end] + AGENT_BLOCK)
    assert "uses ${BOOTSTRAP_NODE_IP} before it is set" in findings(inline_config(late), "C8")["C8"].evidence


def test_it_is_not_patched_and_the_refusal_names_what_is_there() -> None:
    with pytest.raises(RenderError, match=r"UMB125 bootkube.sh already has a tunnel\n.*inline, as in the first plan"):
        patch(IgnitionDocument(inline_config()), for_shape(Shape.OPENSHIFT))
