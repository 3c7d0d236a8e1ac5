"""Pivot conditions P1 to P8, each against a real API: each detects exactly its own failure."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support import api_stock
from tests.support.api_stock import Stock
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.etcdctl import Row
from tests.support.live_site import OPENSHIFT, changing, live_site, machines_of, told_by
from tests.support.made_up_smoke_test import MadeUpSmokeTest
from tests.support.pivot_testbed import PivotTestbed, make_testbed

from umbilical.hardway.etcd import client_url, peer_url
from umbilical.hardway.machines.interface import BackendServer, Done
from umbilical.hardway.pivot_conditions import bootstrap_member, conditions, first_that_fails, members
from umbilical.manifests.objects import IpAddress

pytestmark = pytest.mark.real(*PROGRAMS)


@pytest.fixture
def ready(tmp_path: Path, plane: ControlPlane, shelf: Stock, smoke_test: MadeUpSmokeTest) -> PivotTestbed:
    return make_testbed(tmp_path, plane, shelf, smoke_test, masters=3)


def failing(given: PivotTestbed) -> str:
    return first_that_fails(given.site, conditions(given.site))


def test_all_eight_hold_and_nothing_is_changed_by_looking(ready: PivotTestbed) -> None:
    assert failing(ready) == ""
    assert failing(ready) == ""
    assert [line.split()[1] for line in told_by(ready.site)[:8]] == ["P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8"]
    assert changing(ready.site) == []


def test_without_a_service_that_can_be_asked_there_is_no_p8(tmp_path: Path, plane: ControlPlane) -> None:
    assert [one.id for one in conditions(live_site(tmp_path, plane))] == [f"P{number}" for number in range(1, 8)]


def test_p1_misses_a_master_that_is_not_registered(ready: PivotTestbed) -> None:
    node = ready.site.cluster.masters[1]
    ready.shelf.take("Node", node.name)
    assert failing(ready) == f"P1 all masters are registered under their names: {node.name} is not registered"


def test_p1_misses_a_master_under_another_address(ready: PivotTestbed) -> None:
    node = ready.site.cluster.masters[2]
    ready.shelf.put(api_stock.node(node.name, "192.0.2.9"))
    assert "has the addresses ['192.0.2.9'], not 192.168.126.103" in failing(ready)


def _learner(given: PivotTestbed) -> None:
    given.etcd.rows[3] = replace(given.etcd.rows[3], is_learner=True)


def _not_joined(given: PivotTestbed) -> None:
    given.etcd.rows.pop()


def _unhealthy(given: PivotTestbed) -> None:
    given.etcd.unhealthy[client_url(given.site.cluster.masters[1])] = "context deadline exceeded"


def _down(given: PivotTestbed) -> None:
    given.etcd.is_down = True


@pytest.mark.parametrize(
    ("harm", "seen"),
    [
        (_learner, "4 members; not voting: master-2"),
        (_not_joined, "3 members; not voting: master-2"),
        (_unhealthy, "https://192.168.126.102:2379: context deadline exceeded"),
        (_down, "context deadline exceeded"),
    ],
)
def test_p2_misses_a_vote_on_every_master(ready: PivotTestbed, harm: Callable[[PivotTestbed], None], seen: str) -> None:
    harm(ready)
    found = failing(ready)
    assert found.startswith("P2 ")
    assert seen in found


def led_to(given: PivotTestbed, kubeconfig: Path, *addresses: IpAddress) -> None:
    """Have another server answer at some addresses."""
    before = given.site.kubeconfig
    given.site.kubeconfig = lambda address: kubeconfig if address in addresses else before(address)


def test_p3_misses_an_api_server_that_does_not_answer(ready: PivotTestbed, tmp_path: Path) -> None:
    silent = tmp_path / "silent"
    silent.write_text(ready.site.kubeconfig(None).read_text().replace("https://127.0.0.1:", "https://127.0.0.1:1#"))
    led_to(ready, silent, ready.site.cluster.masters[1].address)
    assert failing(ready).startswith("P3 every master's control plane is ready: UMB")


@pytest.mark.parametrize("program", ["kube-controller-manager", "kube-scheduler"])
def test_p3_misses_controllers_that_do_not_run_on_a_master(ready: PivotTestbed, program: str) -> None:
    ready.pods.running.discard(program)
    assert failing(ready) == f"P3 every master's control plane is ready: {program} does not run on master-0"


def test_p4_misses_data_that_another_api_server_does_not_see(ready: PivotTestbed, stranger: Path) -> None:
    led_to(ready, stranger, ready.site.cluster.bootstrap.address)
    assert "P4 " in failing(ready)
    assert "kube-apiserver on bootstrap returned None" in failing(ready)


def test_p5_misses_the_key_of_tokens(ready: PivotTestbed, stranger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    led_to(ready, stranger, ready.site.cluster.masters[1].address)
    found = first_that_fails(ready.site, [one for one in conditions(ready.site) if one.id == "P5"])
    assert found.endswith("kube-apiserver on master-1 rejected a token that the bootstrap API server issued")


def test_p6_misses_the_authority_of_administrators(ready: PivotTestbed, stranger: Path) -> None:
    led_to(ready, stranger, ready.site.cluster.masters[2].address)
    found = first_that_fails(ready.site, [one for one in conditions(ready.site) if one.id == "P6"])
    assert found.endswith("kube-apiserver on master-2 authenticated system:admin as stranger")


@pytest.mark.parametrize(
    "answer",
    [Done(0, b'{"kind":"Status","code":401}', b""), Done(35, b"", b"curl: (35) bad certificate"), Done(0, b"[]", b"")],
)
def test_p6_misses_the_authority_of_kubelets(ready: PivotTestbed, answer: Done) -> None:
    machines_of(ready.site).responders.insert(
        0, lambda node, command, stdin: answer if command[0] == "curl" and "126.102" in command[-1] else None
    )
    assert failing(ready).startswith("P6 ")
    assert "the kubelet of master-0 got an error from master-1" in failing(ready)


def test_p7_misses_masters_behind_the_load_balancer(ready: PivotTestbed) -> None:
    machines = machines_of(ready.site)
    names = [node.name for node in ready.site.cluster.masters]
    machines.servers = [BackendServer("api", name, name == names[0], "L7STS/500") for name in names]
    assert failing(ready).endswith("the load balancer sees 1 masters up, 2 are needed")


def test_p7_counts_who_is_up_for_the_api_and_not_for_another_service(ready: PivotTestbed) -> None:
    machines = machines_of(ready.site)
    names = [node.name for node in ready.site.cluster.masters]
    machines.servers = [
        BackendServer(backend, name, backend != "api", "") for backend in ("api", "machine-config") for name in names
    ]
    assert failing(ready).endswith("the load balancer sees 0 masters up, 2 are needed")


def test_p8_misses_a_webhook_that_is_not_reached(ready: PivotTestbed, smoke_test: MadeUpSmokeTest) -> None:
    ready.shelf.put(*MadeUpSmokeTest(smoke_test._authority, 1).webhook_objects(ready.site.cluster.masters[0].name))
    found = failing(ready)
    assert found.startswith("P8 every master reaches the webhook directly: allow: ")
    assert "refused" in found


def test_the_bootstrap_member_is_found_by_name_or_address_and_is_none_once_it_left(ready: PivotTestbed) -> None:
    site = ready.site
    found = bootstrap_member(site)
    assert found is not None
    assert found.id == "1"
    ready.etcd.rows[0] = Row(1, "", peer_url(site.cluster.bootstrap))
    assert bootstrap_member(site) == members(site)[0]
    del ready.etcd.rows[0]
    assert bootstrap_member(site) is None


def test_openshift_asks_its_operators(tmp_path: Path, plane: ControlPlane) -> None:
    """Its CRD is not served here, so no condition is reported, which must fail."""
    site = live_site(tmp_path, plane, OPENSHIFT)
    p2 = next(one for one in conditions(site) if one.id == "P2")
    assert "there is no Etcd `cluster`" in first_that_fails(site, [p2])
    assert machines_of(site).calls == []
