"""What the scene asks of certificates and manifests, for every family; how it runs is shown by the scenarios."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from umbilical.lab.cast import Cast
from umbilical.lab.errors import LabError
from umbilical.lab.kubernetes_scene import KubernetesScene, Plane
from umbilical.lab.lab import Completed
from umbilical.lab.story import Call, Story
from umbilical.lab.topology import Family, plan_topology


class _Lab(SimpleNamespace):
    """Answers every command with what a test put there."""

    answer: Completed

    def exec(self, node: str, command: list[str], **options: Any) -> Completed:
        self.asked = (node, command, options)
        return self.answer


def _scene(family: Family = Family.IPV4, **answer: Any) -> KubernetesScene:
    lab: Any = _Lab(runner=None, topology=plan_topology(family=family))
    lab.answer = Completed("bootstrap", ("kubectl",), **{"exit_code": 0, "stdout": b"", "stderr": b"", **answer})
    return KubernetesScene(lab, Cast(), Story("a test"))


@pytest.mark.parametrize("family", list(Family))
def test_certificates_cover_both_kube_apiservers_and_every_kubelet(family: Family) -> None:
    scene = _scene(family)
    names = scene.certificate_names()
    wanted = {str(one.ip) for plane in Plane for one in scene.lab.topology.node(plane.value).addresses}
    assert wanted == set(names.node_ips)
    assert {node.name for node in names.nodes} == {node.name for node in scene.lab.topology.nodes}
    assert len(names.service_ips) == len(scene.lab.topology.service_networks)


@pytest.mark.parametrize("family", list(Family))
def test_production_keeps_its_objects_in_the_bootstrap_nodes_etcd(family: Family) -> None:
    scene = _scene(family)
    spec = scene.plane_spec(Plane.PRODUCTION)
    address = scene.lab.topology.bootstrap.address
    host = f"[{address}]" if ":" in address else address
    assert spec.etcd_urls == (f"https://{host}:2379",)
    assert not spec.has_etcd
    assert not spec.has_controllers


def test_a_refusal_by_the_webhook_is_told_from_a_webhook_that_is_not_reached() -> None:
    denied = _scene(exit_code=1, stderr=b'admission webhook "v" denied the request: no')
    blocked = _scene(exit_code=1, stderr=b'failed calling webhook "v": connect: network is unreachable')
    assert denied.judge("deny").call is Call.DENIED
    assert blocked.judge("deny").call is Call.UNREACHABLE
    assert _scene(stdout=b"configmap/judged-allow created").judge("allow").call is Call.ALLOWED


def test_an_object_that_the_api_refuses_is_an_error_in_three_lines() -> None:
    with pytest.raises(LabError) as caught:
        _scene(exit_code=1, stderr=b"error: nope").apply({"kind": "Namespace"})
    assert caught.value.code == "UMB816"


def test_objects_go_to_kubectl_by_standard_input_and_not_as_arguments() -> None:
    scene = _scene()
    scene.apply({"kind": "Secret", "data": {"key": "c2VjcmV0"}})
    lab: Any = scene.lab
    _, command, options = lab.asked
    assert not any("c2VjcmV0" in word for word in command)
    assert json.loads(options["stdin"])["items"][0]["kind"] == "Secret"
