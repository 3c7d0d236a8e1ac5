"""A real kube-apiserver asks the lab's service, directly: a verdict, a converted letter, a greeting.

plane  10.90.0.1  etcd and kube-apiserver, from the rendered manifests
pod    10.90.0.2  lab-service, as its pod's manifest starts it
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.control_plane_specs import control_plane_set, control_plane_spec
from tests.support.static_processes import StaticProcesses
from tests.support.tunnel_pair import wait_until

from umbilical.assets.control_plane import render_control_plane
from umbilical.host.errors import HostError
from umbilical.host.files import write_file
from umbilical.host.netns import Namespace, Network
from umbilical.host.processes import Child, start
from umbilical.lab.objects import API_SERVICE, LETTERS, NAME, NAMESPACE, PORT, Service, judged, letter, make_service
from umbilical.lab.topology import plan_topology

pytestmark = [pytest.mark.real("etcd", "kube-apiserver", "kubectl"), pytest.mark.root, pytest.mark.timeout(240)]
POD = "10.90.0.2"


class Place:
    def __init__(self, plane: StaticProcesses, service: Service) -> None:
        self.plane = plane
        self.service = service

    def apply(self, *objects: dict[str, Any]) -> None:
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.plane.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(listed))

    def create(self, wanted: dict[str, Any]) -> str:
        """Return "created", or why not."""
        try:
            self.plane.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(wanted))
        except HostError as error:
            return error.why
        return "created"

    def get(self, *arguments: str) -> str:
        """Return what kubectl prints, or why it does not."""
        try:
            return self.plane.kubectl("-n", NAMESPACE, "get", *arguments)
        except HostError as error:
            return error.why


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("objects")
    spec = control_plane_spec(has_controllers=False, is_throwaway=True)
    service = make_service(plan_topology())
    with Network("umb") as network:
        node, pod = network.create("plane"), network.create("pod")
        network.link(node, f"{spec.node_ip}/24", pod, f"{POD}/24")
        plane = StaticProcesses(folder / "plane", render_control_plane(spec, control_plane_set(spec)), node)
        program = _start(service, folder, pod)
        try:
            plane.start("etcd", "kube-apiserver")
            plane.wait_for_api()
            made = Place(plane, service)
            made.apply(*service.objects, _endpoints())
            yield made
        finally:
            program.kill()
            plane.stop()


def _start(service: Service, folder: Path, pod: Namespace) -> Child:
    [container] = service.pod_spec["containers"]
    [mount] = container["volumeMounts"]
    write_file(folder / "tls.crt", service.pair.certificate)
    write_file(folder / "tls.key", service.pair.key)
    flags = [flag.replace(mount["mountPath"], str(folder)) for flag in container["args"]]
    command = pod.command(sys.executable, "-m", "umbilical.lab.service_program", *flags)
    child = start(command, folder / "service.log", name=NAME)
    child.wait_ready(lambda: "ready on port" in child.log_text(), 30)
    return child


def _endpoints() -> dict[str, Any]:
    """Do the work of the endpoint controller, which would find the pod by its status."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": NAME}},
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": PORT, "protocol": "TCP"}],
        "endpoints": [{"addresses": [POD], "conditions": {"ready": True}}],
    }


def test_the_webhook_allows_and_denies_by_its_own_word(place: Place) -> None:
    place.apply(place.service.webhook)
    denial = "the webhook in the cluster says no: worker-0"
    wait_until(lambda: denial in place.create(judged("deny")), "the denial", 60)
    assert place.create(judged("allow")) == "created"


def test_a_letter_that_is_stored_as_v1_is_read_as_v2(place: Place) -> None:
    place.apply(place.service.letters)
    wait_until(lambda: place.create(letter("first", "hello, world")) == "created", "the kind is served", 60)
    place.apply(letter("first", "hello, world"))
    wait_until(lambda: "worker-0" in place.get(f"letters.v2.{LETTERS.partition('.')[2]}", "-o=yaml"), "conversion", 60)
    printed = place.get(f"letters.v2.{LETTERS.partition('.')[2]}", "first", "--no-headers")
    assert printed.split() == ["first", "hello", "world"]


def test_the_aggregated_api_is_available_and_greets_whoever_asks(place: Place) -> None:
    place.apply(place.service.api_service)
    status = "-o=jsonpath={.status.conditions[?(@.type=='Available')].status}"
    wait_until(lambda: place.get("apiservice", API_SERVICE, status) == "True", "availability", 60)
    wait_until(lambda: "hello world" in place.get("greetings"), "the list", 60)
    rows = [line.split() for line in place.get("greetings", "--no-headers").splitlines()]
    assert [row[0] for row in rows] == ["world", "cluster", "bootstrap"]
    assert {row[-1] for row in rows} == {"system:admin"}
    assert "hello moon, says worker-0" in place.get("greetings", "moon")
