"""The objects around the lab's service, and a real kube-apiserver that asks it directly."""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.control_plane import PROGRAMS, control_plane
from tests.support.control_plane_specs import control_plane_set, control_plane_spec
from tests.support.netns import Namespace, Network
from tests.support.static_processes import StaticProcesses
from tests.support.tunnel_pair import wait_until

from umbilical.fault import HostError
from umbilical.host.files import write_file
from umbilical.host.processes import Child, start
from umbilical.lab.api_calls import CallTotals, call, call_until
from umbilical.lab.control_plane import render_control_plane
from umbilical.lab.images import lab_images
from umbilical.lab.objects import (
    API_SERVICE,
    LETTERS,
    NAME,
    NAMESPACE,
    PLAIN_PORT,
    PORT,
    ServiceObjects,
    judged,
    letter,
    make_service,
    ready_endpoints,
    service,
    service_on,
)
from umbilical.lab.service_program import parse_arguments
from umbilical.lab.topology import Family, plan_topology
from umbilical.pki.certificate import read_certificates

NOW = datetime.now(UTC)


def test_it_runs_on_the_first_worker_or_else_on_the_last_master() -> None:
    for masters, workers, node in ((3, 2, "worker-0"), (3, 0, "master-2"), (1, 0, "master-0")):
        made = make_service(plan_topology(masters=masters, workers=workers), NOW)
        assert made.node == made.pod["spec"]["nodeName"] == node
    made = make_service(plan_topology(family=Family.IPV6), NOW)
    [certificate] = read_certificates(made.pair.certificate)
    assert f"{NAME}.{NAMESPACE}.svc" in certificate.names
    [authority] = read_certificates(made.authority)
    assert certificate.authority_identifier == authority.key_identifier


def test_the_service_finds_the_pod_whose_program_knows_its_flags() -> None:
    pod = make_service(plan_topology(), NOW).pod
    spec = service()["spec"]
    assert spec["selector"].items() <= pod["metadata"]["labels"].items()
    ports = [port["containerPort"] for port in pod["spec"]["containers"][0]["ports"]]
    assert [port["targetPort"] for port in spec["ports"]] == ports
    [container] = make_service(plan_topology(), NOW).pod["spec"]["containers"]
    assert container["command"][0] in lab_images({})[container["image"]].modules
    options = parse_arguments(container["args"])
    assert options.node_name == "worker-0"
    [mount] = container["volumeMounts"]
    assert options.key.startswith(mount["mountPath"])


def test_a_second_container_answers_without_tls_and_connections_end_where_that_is_wanted() -> None:
    made = make_service(plan_topology(), NOW)
    for wanted in (False, True):
        [container] = replace(made, closes_connections=wanted).pod["spec"]["containers"]
        assert parse_arguments(container["args"]).close_connections is wanted
    made = replace(made, has_plain_port=True, closes_connections=True)
    _, plain = made.pod["spec"]["containers"]
    options = parse_arguments(plain["args"])
    assert (options.plain, options.close_connections, options.listen) == (True, True, ("", PLAIN_PORT))
    assert "volumeMounts" not in plain
    assert plain["readinessProbe"]["httpGet"]["port"] == PLAIN_PORT


def test_what_is_needed_first_comes_first_and_keys_stay_out_of_repr() -> None:
    kinds = [one["kind"] for one in make_service(plan_topology(), NOW).objects]
    assert kinds == ["Namespace", "ServiceAccount", "Secret", "Pod", "Service"]
    assert "PRIVATE" not in repr(make_service(plan_topology(), NOW))


def test_each_ip_family_has_a_service_that_the_certificate_names_and_the_first_one_is_called() -> None:
    both = service_on("worker-0", NOW, (4, 6))
    made = [one for one in both.objects if one["kind"] == "Service"]
    assert [one["metadata"]["name"] for one in made] == [f"{NAME}-ipv4", f"{NAME}-ipv6"]
    assert [one["spec"]["ipFamilies"] for one in made] == [["IPv4"], ["IPv6"]]
    assert "ipFamilies" not in service()["spec"], "the API chooses its first family"
    names = read_certificates(both.pair.certificate)[0].dns_names
    assert {f"{NAME}-ipv{version}.{NAMESPACE}.svc" for version in (4, 6)} <= set(names)
    for families in ((4, 6), (6, 4)):
        [webhook] = replace(both, families=families).webhook["webhooks"]
        assert webhook["clientConfig"]["service"]["name"] == f"{NAME}-ipv{families[0]}"


def test_a_webhook_that_is_down_blocks_nothing_but_what_asks_for_a_verdict() -> None:
    [webhook] = make_service(plan_topology(), NOW).webhook["webhooks"]
    assert webhook["failurePolicy"] == "Fail"
    assert webhook["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": NAMESPACE}
    [selector] = webhook["objectSelector"]["matchExpressions"]
    assert selector["key"] in judged("allow")["metadata"]["labels"]


def test_endpoints_are_dialled_unless_they_say_that_they_are_not_ready() -> None:
    endpoints = [
        {"addresses": ["10.92.4.2"], "conditions": {"ready": True}},
        {"addresses": ["10.92.4.3"], "conditions": {"ready": False}},
        {"addresses": ["10.92.4.4"]},
    ]
    assert ready_endpoints({"items": [{"endpoints": endpoints}, {"endpoints": None}]}) == ["10.92.4.2", "10.92.4.4"]
    assert ready_endpoints({"items": None}) == []


POD = "10.90.0.2"


class Place:
    def __init__(self, plane: StaticProcesses, service: ServiceObjects) -> None:
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


def _start(service: ServiceObjects, folder: Path, pod: Namespace) -> Child:
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


@pytest.mark.real("etcd", "kube-apiserver", "kubectl")
@pytest.mark.root
@pytest.mark.timeout(240)
def test_the_webhook_allows_and_denies_by_its_own_word(place: Place) -> None:
    place.apply(place.service.webhook)
    denial = "the webhook in the cluster says no: worker-0"
    wait_until(lambda: denial in place.create(judged("deny")), "the denial", 60)
    assert place.create(judged("allow")) == "created"


@pytest.mark.real("etcd", "kube-apiserver", "kubectl")
@pytest.mark.root
@pytest.mark.timeout(240)
def test_a_letter_that_is_stored_as_v1_is_read_as_v2(place: Place) -> None:
    place.apply(place.service.letters)
    wait_until(lambda: place.create(letter("first", "hello, world")) == "created", "the kind is served", 60)
    place.apply(letter("first", "hello, world"))
    wait_until(lambda: "worker-0" in place.get(f"letters.v2.{LETTERS.partition('.')[2]}", "-o=yaml"), "conversion", 60)
    printed = place.get(f"letters.v2.{LETTERS.partition('.')[2]}", "first", "--no-headers")
    assert printed.split() == ["first", "hello", "world"]


@pytest.mark.real("etcd", "kube-apiserver", "kubectl")
@pytest.mark.root
@pytest.mark.timeout(240)
def test_the_aggregated_api_is_available_and_greets_whoever_asks(place: Place) -> None:
    place.apply(place.service.api_service)
    status = "-o=jsonpath={.status.conditions[?(@.type=='Available')].status}"
    wait_until(lambda: place.get("apiservice", API_SERVICE, status) == "True", "availability", 60)
    wait_until(lambda: "hello world" in place.get("greetings"), "the list", 60)
    rows = [line.split() for line in place.get("greetings", "--no-headers").splitlines()]
    assert [row[0] for row in rows] == ["world", "cluster", "bootstrap"]
    assert {row[-1] for row in rows} == {"system:admin"}
    assert "hello moon, says worker-0" in place.get("greetings", "moon")


SECONDS = 60.0


async def _until(claim: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not claim():
            await asyncio.sleep(0.02)


@pytest.mark.real(*PROGRAMS)
async def test_calls_go_on_after_failures_until_a_file_is_there_and_repeated_ones_are_timed(tmp_path: Path) -> None:
    calls = CallTotals()
    with control_plane(tmp_path / "plane") as plane:
        # Without its namespace an object is refused, which is a failure as good as any.
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(call_until(plane.kubeconfig, judged("allow"), tmp_path / "stop", calls))
            await _until(lambda: calls.failed > 0)
            await asyncio.to_thread(plane.kubectl, "create", "namespace", "lab")
            await _until(lambda: calls.allowed > 1)
            (tmp_path / "stop").touch()
        seconds = await call(plane.kubeconfig, judged("allow"), 12)
        stored = plane.kubectl("-n", "lab", "get", "configmaps", "-o=name").split()
    assert calls.failed > 0
    assert calls.allowed > 1
    assert calls.slowest_seconds > 0
    assert '"lab" not found' in calls.failures[0]
    assert len(seconds) == 12
    assert all(0 < each < 60 for each in seconds)
    assert "configmap/judged-allow" not in stored
