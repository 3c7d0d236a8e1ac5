"""The tunnel's files for a scene are those of a real installation, with everything filled in."""

from datetime import UTC, datetime

import pytest
import yaml

from umbilical.assets.manifests import placeholders
from umbilical.assets.names import OWN, STATIC_POD
from umbilical.assets.spec import Mode, Shape
from umbilical.lab.cast import OURS, UPSTREAM, Cast
from umbilical.lab.tunnel_parts import make_parts, restore_parts, secrets_of
from umbilical.pki.authority import Authority

ADDRESS = "10.91.0.10"
NOW = datetime.now(UTC)
KUBE_APISERVER = b"""
apiVersion: v1
kind: Pod
metadata: {name: kube-apiserver, namespace: kube-system}
spec:
  containers:
  - name: kube-apiserver
    image: localhost/kube-apiserver:lab
    command: [kube-apiserver, --secure-port=6443]
"""


@pytest.mark.parametrize("shape", [Shape.OPENSHIFT, Shape.SEED])
def test_nothing_is_left_to_be_filled_in_on_the_node(shape: Shape) -> None:
    parts = make_parts(Cast(shape), ADDRESS, Authority, NOW)
    for asset in parts.files:
        if asset.path.endswith(".yaml"):
            assert not [name for name in placeholders.ALL if name in asset.content.decode()], asset.path


def test_the_static_pod_lies_where_a_kubelet_looks() -> None:
    parts = make_parts(Cast(), ADDRESS, Authority, NOW)
    assert parts.files[STATIC_POD].content == parts.files[OWN.server_pod].content


def test_server_and_agents_may_be_of_different_makers() -> None:
    parts = make_parts(Cast(server_image=UPSTREAM, agent_image=OURS), ADDRESS, Authority, NOW)
    server = yaml.safe_load(parts.files[STATIC_POD].content)
    (agents,) = (one for one in parts.objects if one["kind"] == "DaemonSet")
    assert server["spec"]["containers"][0]["image"] == UPSTREAM
    assert agents["spec"]["template"]["spec"]["containers"][0]["image"] == OURS
    assert yaml.safe_load(parts.files[OWN.agent_daemon_set].content) == agents


def test_kube_apiserver_is_told_the_same_socket_and_protocol_as_the_server() -> None:
    parts = make_parts(Cast(Shape.SEED), ADDRESS, Authority, NOW)
    pod = yaml.safe_load(parts.kube_apiserver_pod(KUBE_APISERVER))
    egress = yaml.safe_load(parts.egress_file)
    cluster = egress["egressSelections"][0]["connection"]
    assert parts.spec.mode is Mode.HTTP_CONNECT
    assert cluster["proxyProtocol"] == "HTTPConnect"
    assert cluster["transport"]["uds"]["udsName"] == parts.spec.socket_on_host
    mounts = {mount["mountPath"] for mount in pod["spec"]["containers"][0]["volumeMounts"]}
    assert parts.spec.socket_directory in mounts


def test_a_tunnel_is_taken_up_again_with_the_same_certificates() -> None:
    cast = Cast()
    parts = make_parts(cast, ADDRESS, Authority, NOW)
    again = restore_parts(cast, ADDRESS, Authority, secrets_of(parts), NOW)
    assert again.certificates == parts.certificates
    assert [(one.path, one.content) for one in again.files] == [(one.path, one.content) for one in parts.files]
