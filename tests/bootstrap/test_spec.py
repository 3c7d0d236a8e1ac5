"""The one input of every asset: defaults per shape, names, and everything that is refused."""

import dataclasses
import hashlib
import ipaddress
from typing import Any

import pytest

from umbilical.bootstrap.certificates import Certificates, fingerprint
from umbilical.bootstrap.names import NATIVE, OWN, RECEIPT
from umbilical.bootstrap.spec import Mode, Resources, Shape, for_shape
from umbilical.fault import RenderError
from umbilical.pki.pem import KeyPair


def test_the_shapes_are_what_the_installer_landed_and_the_first_plan() -> None:
    spec = for_shape(Shape.OPENSHIFT)
    assert spec.mode is Mode.GRPC
    assert spec.namespace == "openshift-bootstrap-konnectivity"
    assert not spec.host_network
    assert spec.strategies == ("destHost", "defaultRoute")
    assert (spec.agent_port, spec.health_port, spec.admin_port) == (8091, 2041, 8095)
    spec = for_shape(Shape.SEED)
    assert (spec.mode, spec.namespace, spec.host_network) == (Mode.HTTP_CONNECT, "kube-system", True)
    assert not spec.owns_namespace


def test_on_openshift_the_socket_has_another_name_in_kube_apiservers_pod_and_elsewhere_one_anywhere() -> None:
    for shape in (Shape.OPENSHIFT, Shape.SEED):
        spec = for_shape(shape)
        assert spec.socket_on_host == "/etc/kubernetes/bootstrap-configs/konnectivity-server.socket"
        assert spec.socket_in_kube_apiserver == "/etc/kubernetes/config/konnectivity-server.socket"
    spec = for_shape(Shape.OPENSHIFT, socket_directory="/etc/kubernetes/bootstrap-configs/tunnel")
    assert spec.socket_in_kube_apiserver == "/etc/kubernetes/config/tunnel/konnectivity-server.socket"
    spec = for_shape(Shape.KUBERNETES, socket_directory="/run/konnectivity")
    assert spec.socket_in_kube_apiserver == spec.socket_on_host
    assert spec.socket_directory == "/run/konnectivity"


def test_the_family_is_that_of_the_explicit_address() -> None:
    address = ipaddress.ip_address("fd00::5")
    assert for_shape(Shape.OPENSHIFT, node_ip=address).family == 6
    assert for_shape(Shape.OPENSHIFT, use_ipv6=True).family == 6
    assert for_shape(Shape.OPENSHIFT).family == 4


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"namespace": "Kube_System"}, "namespace"),
    ({"namespace": "a" * 64}, "namespace"),
    ({"namespace": ""}, "namespace"),
    ({"image": "quay.io/x; rm -rf /"}, "image"),
    ({"image": "a|b"}, "image"),
    ({"image": ""}, "image"),
    ({"resources": Resources(cpu="much")}, "resources: cpu"),
    ({"resources": Resources(memory="50Mb")}, "resources: memory"),
    ({"strategies": ()}, "strategies"),
    ({"strategies": ("destHost", "destHost")}, "strategies"),
    ({"strategies": ("nearest",)}, "strategies"),
    ({"agent_port": 80}, "agent port"),
    ({"agent_port": 50000}, "agent port"),
    ({"agent_port": 6443}, "agent port"),
    ({"health_port": 22623}, "health port"),
    ({"health_port": 8091}, "ports"),
    ({"admin_port": 2041}, "ports"),
    ({"socket_directory": "relative"}, "socket directory"),
    ({"socket_directory": "/run/konnectivity"}, "socket directory"),
    ({"socket_directory": "/etc/kubernetes/bootstrap-configs/../manifests"}, "socket directory"),
    ({"socket_directory": "/etc/kubernetes/bootstrap-configs/"}, "socket directory"),
    ({"socket_directory": "/etc/kubernetes/bootstrap-configs/" + "a" * 60}, "socket directory"),
    ({"certificate_hours": 0}, "certificate hours"),
    ({"certificate_hours": 25}, "certificate hours"),
]


@pytest.mark.parametrize(("changes", "field"), REFUSED, ids=str)
def test_an_unusable_field_is_refused_by_its_name(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(RenderError) as caught:
        for_shape(Shape.OPENSHIFT, **changes)
    assert caught.value.code == "UMB110"
    assert caught.value.what.startswith(field)


def test_a_changed_copy_is_checked_again() -> None:
    with pytest.raises(RenderError):
        for_shape(Shape.OPENSHIFT).replace(agent_port=1)


def test_our_names_and_the_landed_ones_have_nothing_in_common() -> None:
    own = set(dataclasses.astuple(OWN)) | {RECEIPT}
    assert own.isdisjoint(dataclasses.astuple(NATIVE))
    assert NATIVE.override_in_render_container == "/assets/konnectivity-config-override.yaml"
    assert OWN.override_in_render_container == "/assets/umbilical/konnectivity-config-override.yaml"
    # From there cluster-bootstrap would copy our keys.
    assert not OWN.pki_directory.startswith("/opt/openshift/tls")


def test_the_fingerprint_is_that_of_the_file_and_keys_stay_out_of_what_is_printed() -> None:
    given = Certificates(b"ca", KeyPair(b"server", b"server-key"), KeyPair(b"agent", b"agent-key"))
    assert given.server_fingerprint == fingerprint(b"server") == "sha256-" + hashlib.sha256(b"server").hexdigest()
    assert "key" not in repr(given).replace("key=", "")
