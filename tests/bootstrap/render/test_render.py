"""Trees of files from specs: by example, and for any spec there is."""

import ipaddress
import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
import yaml
from hypothesis import given, settings
from tests.support.tunnel_specs import tunnel_specs

from umbilical.bootstrap.names import NATIVE, OWN, STATIC_POD
from umbilical.bootstrap.render import objects as placeholders
from umbilical.bootstrap.render.render import (
    KUBE_APISERVER_POD,
    Certificates,
    check_kubernetes,
    render,
    render_kubernetes,
)
from umbilical.bootstrap.spec import Shape, TunnelSpec, for_shape
from umbilical.fault import RenderError
from umbilical.manifests.tree import AssetTree
from umbilical.pki.authority import Authority
from umbilical.pki.profiles import KeyType, client_profile, server_profile

NODE_IP: Final = ipaddress.ip_address("10.0.0.5")
KUBE_APISERVER: Final = b"""
apiVersion: v1
kind: Pod
metadata: {name: kube-apiserver, namespace: kube-system}
spec:
  containers: [{name: kube-apiserver, image: kube-apiserver, command: [kube-apiserver, --v=2]}]
"""


def made_certificates() -> Certificates:
    now, day = datetime.now(UTC), timedelta(days=1)
    authority = Authority.create("ca", now, day, KeyType.ECDSA_P256)
    return Certificates(
        authority.certificate_pem,
        authority.issue(server_profile("server", [str(NODE_IP)], KeyType.ECDSA_P256), now, day),
        authority.issue(client_profile("agent", key_type=KeyType.ECDSA_P256), now, day),
    )


CERTIFICATES: Final = made_certificates()


def kubernetes(**changes: Any) -> TunnelSpec:
    return for_shape(Shape.KUBERNETES, **{"image": "registry.example/own:1", "node_ip": NODE_IP, **changes})


def leftovers(tree: AssetTree) -> set[str]:
    texts = [asset.content.decode() for asset in tree if asset.path.endswith(".yaml")]
    return {found for text in texts for found in re.findall(r"\$\{[^}]*\}?", text)}


def objects(tree: AssetTree) -> dict[str, dict[str, Any]]:
    return {asset.path: yaml.safe_load(asset.content) for asset in tree if asset.path.endswith(".yaml")}


@pytest.mark.parametrize("names", [OWN, NATIVE], ids=["own", "native"])
def test_the_installers_shape_has_all_eight_files_with_their_modes(names: Any) -> None:
    tree = render(for_shape(Shape.OPENSHIFT), names)
    scripts, configs = (names.library, names.certificate_script), (names.egress, names.override)
    manifests = (names.server_pod, names.namespace, names.agent_secret, names.agent_daemon_set)
    modes = {**dict.fromkeys((*configs, *manifests), 0o600), **dict.fromkeys(scripts, 0o555)}
    assert {asset.path: asset.mode for asset in tree} == modes


def test_the_planned_shape_speaks_http_connect_from_kube_system_which_is_not_made() -> None:
    assert OWN.namespace not in render(for_shape(Shape.SEED))
    assert OWN.namespace not in render(for_shape(Shape.OPENSHIFT, namespace="kube-system"))
    made = objects(render(for_shape(Shape.SEED)))
    assert made[OWN.egress]["egressSelections"][0]["connection"]["proxyProtocol"] == "HTTPConnect"
    assert "--mode=http-connect" in made[OWN.server_pod]["spec"]["containers"][0]["args"]
    assert made[OWN.agent_daemon_set]["metadata"]["namespace"] == "kube-system"


def test_without_anything_given_only_what_the_node_knows_is_left_open() -> None:
    assert leftovers(render(for_shape(Shape.OPENSHIFT))) == set(placeholders.ALL)


def test_with_address_image_and_certificates_nothing_is_left_open() -> None:
    tree = render(
        for_shape(Shape.OPENSHIFT, node_ip=NODE_IP, image="registry.example/own:1"), certificates=CERTIFICATES
    )
    assert leftovers(tree) == set()
    assert OWN.certificate_script not in tree
    pki = f"{OWN.pki_directory}/server"
    assert tree[f"{pki}/tls.key"].content == CERTIFICATES.server.key
    assert {tree[f"{pki}/{name}"].mode for name in ("ca.crt", "tls.crt", "tls.key")} == {0o600}
    # The agents' key is nowhere but in their Secret, where it is base64.
    assert [asset.path for asset in tree if CERTIFICATES.agent.key in asset.content] == []


def test_kubernetes_gets_both_static_pods_the_egress_file_and_what_to_apply() -> None:
    tree = render_kubernetes(kubernetes(), KUBE_APISERVER, CERTIFICATES)
    assert [asset.path for asset in tree] == [
        "/etc/kubernetes/egress-selector/egress-selector-config.yaml",
        "/etc/kubernetes/konnectivity/pki/ca.crt",
        "/etc/kubernetes/konnectivity/pki/tls.crt",
        "/etc/kubernetes/konnectivity/pki/tls.key",
        STATIC_POD,
        KUBE_APISERVER_POD,
        "/etc/kubernetes/konnectivity/agent/konnectivity-agent-certs-secret.yaml",
        "/etc/kubernetes/konnectivity/agent/konnectivity-agent-daemonset.yaml",
    ]
    assert leftovers(tree) == set()


def test_the_paths_of_kubernetes_agree_with_each_other() -> None:
    made = objects(render_kubernetes(kubernetes(), KUBE_APISERVER, CERTIFICATES))
    apiserver = made[KUBE_APISERVER_POD]["spec"]
    (flag,) = [word for word in apiserver["containers"][0]["command"] if word.startswith("--egress-selector")]
    egress = made[flag.partition("=")[2]]
    socket = egress["egressSelections"][0]["connection"]["transport"]["uds"]["udsName"]
    assert f"--uds-name={socket}" in made[STATIC_POD]["spec"]["containers"][0]["args"]
    mounted = [mount["mountPath"] for mount in apiserver["containers"][0]["volumeMounts"]]
    assert socket.rpartition("/")[0] in mounted
    assert {volume["hostPath"]["path"] for volume in apiserver["volumes"]} == set(mounted)


UNWORKABLE: Final = {
    "no manifest": kubernetes(),
    "host network": for_shape(Shape.OPENSHIFT, host_network=True),
    "foreign namespace": for_shape(Shape.OPENSHIFT, namespace="default"),
    "seed elsewhere": for_shape(Shape.SEED, namespace="tunnel"),
    "no address": for_shape(Shape.OPENSHIFT, node_ip=ipaddress.ip_address("::")),
    "zone": for_shape(Shape.OPENSHIFT, node_ip=ipaddress.ip_address("fd00::1%'; reboot")),
    "zone of a network": for_shape(Shape.OPENSHIFT, machine_networks=(ipaddress.ip_network("fd00::1%; reboot/128"),)),
}


@pytest.mark.parametrize("spec", UNWORKABLE.values(), ids=UNWORKABLE)
def test_what_cannot_work_on_a_bootstrap_node_is_refused(spec: TunnelSpec) -> None:
    with pytest.raises(RenderError, match="UMB113"):
        render(spec)


@pytest.mark.parametrize(
    "spec",
    [for_shape(Shape.OPENSHIFT), kubernetes(image=None), kubernetes(node_ip=None)],
    ids=["shape", "image", "address"],
)
def test_what_cannot_work_beside_kubernetes_is_refused(spec: TunnelSpec) -> None:
    with pytest.raises(RenderError, match="UMB113"):
        check_kubernetes(spec)
    with pytest.raises(RenderError):
        render_kubernetes(spec, KUBE_APISERVER, CERTIFICATES)


@given(tunnel_specs())
@settings(max_examples=60)
def test_any_spec_gives_yaml_with_known_placeholders_only_and_the_same_each_time(spec: TunnelSpec) -> None:
    tree = render(spec)
    assert leftovers(tree) <= set(placeholders.ALL)
    assert all(isinstance(value, dict) and value["apiVersion"] and value["kind"] for value in objects(tree).values())
    assert [(asset.path, asset.content) for asset in render(spec)] == [(asset.path, asset.content) for asset in tree]
    assert b"{{" not in tree[OWN.override].content


@given(tunnel_specs())
@settings(max_examples=60)
def test_whatever_the_spec_the_paths_of_the_socket_agree(spec: TunnelSpec) -> None:
    made = objects(render(spec))
    in_pod = made[OWN.egress]["egressSelections"][0]["connection"]["transport"]["uds"]["udsName"]
    on_host = in_pod.replace("/etc/kubernetes/config", "/etc/kubernetes/bootstrap-configs", 1)
    assert f"--uds-name={on_host}" in made[OWN.server_pod]["spec"]["containers"][0]["args"]


@given(tunnel_specs(Shape.KUBERNETES))
@settings(max_examples=60)
def test_any_spec_of_kubernetes_is_complete_and_the_same_each_time(spec: TunnelSpec) -> None:
    tree = render_kubernetes(spec, KUBE_APISERVER, CERTIFICATES)
    assert leftovers(tree) == set()
    again = render_kubernetes(spec, tree[KUBE_APISERVER_POD].content, CERTIFICATES)
    assert [(asset.path, asset.content) for asset in again] == [(asset.path, asset.content) for asset in tree]
