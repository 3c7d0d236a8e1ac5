"""Stages 09 to 11 and 14: machines boot, the bootstrap control plane answers, nodes join."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.api_stock import Stock, namespace, node
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.etcdctl import Etcdctl, Row
from tests.support.fixture_types import Patch
from tests.support.live_site import OPENSHIFT, StaticPods, live_site, machines_of, naps_of, seen_by, switch_on, told_by
from tests.support.made_up_smoke_test import MadeUpSmokeTest
from tests.support.pivot_testbed import joined

from umbilical.bootstrap.names import AGENT_SECRET
from umbilical.checks.check import Outcome
from umbilical.cluster import objects
from umbilical.fault import HardwayError, StageTimeout, Unsafe
from umbilical.hardway import kube
from umbilical.hardway.artifacts.tunnel import AGENT_PKI
from umbilical.hardway.etcd import client_url, peer_url
from umbilical.hardway.machines.interface import Done, Power
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Condition, Superseded, Undo
from umbilical.hardway.stages import s10_bootstrap
from umbilical.hardway.stages.catalogue import stages
from umbilical.hardway.stages.live import LiveStage, PassingStage, install_step, installed_condition, started_key
from umbilical.hardway.stages.s02_infrastructure import STAGE as INFRASTRUCTURE
from umbilical.hardway.stages.s10_bootstrap import (
    INSTALL,
    controllers_condition,
    documents,
    etcd_condition,
    no_node_condition,
    objects_condition,
)
from umbilical.hardway.stages.s10_bootstrap import STAGE as BOOTSTRAP
from umbilical.hardway.stages.s11_masters import STAGE as MASTERS
from umbilical.hardway.stages.s11_masters import labelled_condition, service_condition
from umbilical.hardway.stages.s15_worker_csrs import WORKERS
from umbilical.manifests.objects import IpAddress
from umbilical.manifests.tree import Asset
from umbilical.pki.authority import Authority
from umbilical.pki.profiles import KeyType

LIVE = [stage for stage in stages() if isinstance(stage, LiveStage)]
PLACE = "bootstrap-konnectivity"
ONE, TWO = (
    f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: small}}\n" for name in ("one", "two")
)
SMALL = ("apiVersion: v1\nkind: Namespace\nmetadata: {name: small}\n", f"{ONE}---\n{TWO}")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return live_site(tmp_path)


def test_stages_nine_to_seventeen_are_live_and_bootstraps_end_with_the_pivot() -> None:
    assert [stage.number for stage in LIVE] == list(range(9, 18))
    assert [stage.number for stage in LIVE if isinstance(stage, Superseded)] == [9, 10]
    assert {stage.ends_with for stage in LIVE if isinstance(stage, PassingStage)} == {13}


@pytest.mark.parametrize("stage", LIVE, ids=lambda stage: stage.name)
def test_every_step_has_a_title_and_a_line_to_type_and_every_check_a_reason(stage: LiveStage, site: Site) -> None:
    steps = stage.steps(site)
    assert len({step.title for step in steps}) == len(steps)
    assert all(step.title and step.command for step in steps)
    checks = stage.checks(site)
    assert checks
    assert len({check.id for check in checks}) == len(checks)
    assert all(check.title and check.why and check.fix for check in checks)


def test_the_line_of_an_installation_has_the_commands_that_run(site: Site, tmp_path: Path) -> None:
    (lab,) = INSTALL.steps(site)
    assert lab.command.startswith("jq . artifacts/ignition/bootstrap.ign   # umbilical writes")
    (virtual,) = INSTALL.steps(live_site(tmp_path, profile=OPENSHIFT))
    place = "/var/lib/libvirt/images/ocp4"
    customize = "coreos-installer iso customize --force --dest-device /dev/vda --dest-ignition"
    assert virtual.command.split("; ") == [
        f"install -m 0600 artifacts/ignition/bootstrap.ign {place}/ocp4-bootstrap.ign",
        f"{customize} {place}/ocp4-bootstrap.ign --output {place}/ocp4-bootstrap.iso {place}/rhcos-live.iso",
        f"qemu-img create -q -f qcow2 {place}/ocp4-bootstrap.qcow2 100G",
        "virsh start ocp4-bootstrap",
    ]


def test_other_content_of_what_it_uses_makes_it_stale(site: Site) -> None:
    def nothing(site: Site) -> list[Condition]:
        return []

    stage = LiveStage(
        9, "x", "y", (), LIVE[0].topic, lambda site: [], nothing, ("manifests",), lambda site: site.cluster.masters
    )
    before = stage.inputs(site)
    assert before["manifests"] == "one"
    site.assets = {**site.assets, "ignition/master-0.ign": Asset("ignition/master-0.ign", b"{}", 0o600)}
    assert stage.inputs(site)["master-0"] != before["master-0"]
    site.hashes = {"manifests": "two"}
    assert stage.inputs(site)["manifests"] == "two"


def test_a_machine_is_installed_once_and_its_moment_is_noted(site: Site) -> None:
    node = site.cluster.masters[0]
    step = install_step(site, node)
    assert step.undo == Undo("remove-machine", {"node": "master-0"})
    step.act()
    noted = site.notes[started_key(node)]
    assert datetime.fromisoformat(noted).tzinfo == UTC
    step.act()
    assert machines_of(site).calls == ["install master-0"]
    assert site.notes[started_key(node)] == noted


def test_a_machine_from_another_config_is_installed_anew(site: Site) -> None:
    machines_of(site).installed["master-0"] = b"another"
    install_step(site, site.cluster.masters[0]).act()
    assert machines_of(site).calls == ["install master-0"]


@pytest.mark.parametrize(
    ("power", "failed", "seen"),
    [(Power.OFF, [], "the machine is off"), (Power.ON, ["containerd"], "not running: containerd")],
)
def test_a_machine_that_lost_its_power_or_a_service_is_seen_and_started(
    site: Site, power: Power, failed: list[str], seen: str
) -> None:
    node = site.cluster.masters[0]
    switch_on(site)
    machines_of(site).powers[node.id] = power
    machines_of(site).failed[node.id] = failed
    assert installed_condition(node).check.judge(site).evidence == seen
    install_step(site, node).act()
    assert machines_of(site).calls == ["start master-0"]
    assert installed_condition(node).check.judge(site).outcome is Outcome.PASSED


def test_a_cluster_whose_machines_are_gone_is_not_built_on_empty_ones(site: Site) -> None:
    build = INFRASTRUCTURE.steps(site)[-1]
    site.notes[started_key(site.cluster.masters[0])] = "2026-11-16T08:00:00+00:00"
    with pytest.raises(HardwayError, match="UMB739"):
        build.act()
    assert machines_of(site).calls == []
    switch_on(site)
    build.act()
    assert machines_of(site).calls[0].startswith("build ")


def test_it_runs_from_its_config_and_bears_its_name(site: Site) -> None:
    node = site.cluster.masters[0]
    condition = installed_condition(node)
    assert condition.check.judge(site).evidence == "it was not installed from this config"
    switch_on(site)
    machines_of(site).files["master-0", "/etc/hostname"] = b"localhost\n"
    assert condition.check.judge(site).evidence == f"its host name is 'localhost', not {node.name}"
    switch_on(site)
    assert condition.check.judge(site).outcome is Outcome.PASSED


def test_nothing_is_booted_with_a_certificate_that_ends_within_two_hours(site: Site) -> None:
    pair = Authority.create("soon", site.now(), timedelta(minutes=90), KeyType.ECDSA_P256).pair
    path = "tls/kubelet-signer.crt"
    site.assets = {**site.assets, path: Asset(path, pair.certificate, 0o644)}
    with pytest.raises(Unsafe) as refused:
        install_step(site, site.cluster.bootstrap).act()
    assert refused.value.code == "UMB762"
    assert refused.value.why.startswith(f"{path} expires at ")
    assert machines_of(site).calls == []
    assert dict(site.notes) == {}


def test_only_the_bootstrap_machine_is_installed(tmp_path: Path) -> None:
    site = live_site(tmp_path)
    for step in INSTALL.steps(site):
        step.act()
    assert machines_of(site).calls == ["install bootstrap"]
    assert list(INSTALL.inputs(site)) == ["bootstrap"]


@pytest.fixture
def bootstrapping(tmp_path: Path, plane: ControlPlane) -> Site:
    made = live_site(tmp_path, plane)
    machines_of(made).responders.append(joined(made))
    return made


def act(bootstrapping: Site, words: str) -> None:
    (found,) = [step for step in BOOTSTRAP.steps(bootstrapping) if words in step.title]
    found.act()


def with_manifests(bootstrapping: Site, *contents: str) -> None:
    others = {path: asset for path, asset in bootstrapping.assets.items() if not path.startswith("manifests/")}
    paths = [f"manifests/{number:02}.yaml" for number in range(len(contents))]
    made = {path: Asset(path, text.encode(), 0o600) for path, text in zip(paths, contents, strict=True)}
    bootstrapping.assets = {**others, **made}


@pytest.mark.real(*PROGRAMS)
def test_etcd_is_asked_on_the_bootstrap_node_itself(bootstrapping: Site) -> None:
    act(bootstrapping, "wait for etcd")
    (call,) = machines_of(bootstrapping).calls
    assert call.startswith("run bootstrap etcdctl --cacert=/etc/kubernetes/bootstrap-secrets/")


@pytest.mark.real(*PROGRAMS)
def test_an_etcd_that_cannot_commit_is_told_with_what_is_known_of_it(bootstrapping: Site, monkeypatch: Patch) -> None:
    etcd = joined(bootstrapping)
    etcd.unhealthy[client_url(bootstrapping.cluster.bootstrap)] = "remote error: tls: bad certificate"
    machines_of(bootstrapping).responders.insert(0, etcd)
    monkeypatch.setattr(s10_bootstrap, "ETCD_SECONDS", 0.0)
    with pytest.raises(StageTimeout) as raised:
        act(bootstrapping, "wait for etcd")
    assert "bad certificate" in raised.value.why
    assert raised.value.remedy.startswith("check the serving certificate")
    assert etcd_condition().check.judge(bootstrapping).outcome is Outcome.FAILED


@pytest.mark.real(*PROGRAMS)
def test_the_api_is_asked_at_the_node_and_through_the_load_balancer(bootstrapping: Site) -> None:
    asked: list[object] = []
    path = bootstrapping.kubeconfig(None)

    def kubeconfig(address: IpAddress | None) -> Path:
        asked.append(address)
        return path

    bootstrapping.kubeconfig = kubeconfig
    act(bootstrapping, "wait for kube-apiserver")
    act(bootstrapping, "load balancer")
    assert asked == [bootstrapping.cluster.bootstrap.address, None]


@pytest.fixture
def small(bootstrapping: Site, shelf: Stock) -> Iterator[Site]:
    with_manifests(bootstrapping, *SMALL)
    yield bootstrapping
    for name in ("one", "two"):
        shelf.take("ConfigMap", name, "small")
    shelf.take("Namespace", "small")


@pytest.mark.real(*PROGRAMS)
def test_every_object_is_created_once_and_what_exists_is_left_alone(small: Site, shelf: Stock) -> None:
    assert objects_condition().check.judge(small).evidence == "3 of 3 objects are missing, the first is Namespace small"
    act(small, "create the cluster's objects")
    assert told_by(small) == ["saw 3 created"]
    shelf.call(lambda client: kube.merge_patch(client, objects.CONFIG_MAP.path("small", "one"), {"data": {"a": "b"}}))
    act(small, "create the cluster's objects")
    assert told_by(small)[1:] == ["saw 3 existed"]
    kept = kube.get(small, objects.CONFIG_MAP, "one", "small")
    assert kept is not None
    assert kept["data"] == {"a": "b"}
    assert objects_condition().check.judge(small).evidence == "3 objects"


@pytest.mark.real(*PROGRAMS)
def test_what_is_no_object_is_told_with_its_file(bootstrapping: Site) -> None:
    with_manifests(bootstrapping, SMALL[0], "- no object\n")
    with pytest.raises(HardwayError) as raised:
        documents(bootstrapping)
    assert (raised.value.code, raised.value.what) == ("UMB744", "manifests/01.yaml contains an invalid object")
    assert objects_condition().check.judge(bootstrapping).outcome is Outcome.FAILED


@pytest.mark.real(*PROGRAMS)
def test_the_agents_get_their_certificates_once_the_node_has_made_them(bootstrapping: Site, shelf: Stock) -> None:
    def make() -> None:
        for name in ("ca.crt", "tls.crt", "tls.key"):
            machines_of(bootstrapping).files["bootstrap", f"{AGENT_PKI}/{name}"] = name.encode()

    shelf.put(namespace(PLACE))
    naps_of(bootstrapping).plans.append(make)
    act(bootstrapping, "certificates")
    assert seen_by(bootstrapping) == [f"{AGENT_PKI}/ca.crt does not exist on the bootstrap node"]
    assert kube.get(bootstrapping, objects.SECRET, AGENT_SECRET, PLACE) is not None
    shelf.take("Secret", AGENT_SECRET, PLACE)


@pytest.mark.real(*PROGRAMS)
def test_without_a_tunnel_nothing_is_handed_out(bootstrapping: Site) -> None:
    titles = [step.title for step in BOOTSTRAP.steps(bootstrapping)]
    bootstrapping.has_tunnel = False
    assert [step.title for step in BOOTSTRAP.steps(bootstrapping)] == titles[:-1]


def test_all_static_pods_of_the_bootstrap_node_are_looked_at(tmp_path: Path) -> None:
    site, openshift = live_site(tmp_path), live_site(tmp_path, profile=OPENSHIFT)
    watched = ["bootstrap-etcd", "bootstrap-api", "api-vip", "bootstrap-controllers", "bootstrap-objects"]
    assert [check.id for check in BOOTSTRAP.checks(site)] == [*watched, "bootstrap-is-no-node"]
    assert [check.id for check in BOOTSTRAP.checks(openshift)] == [*watched, "version-operator", "bootstrap-is-no-node"]
    assert "wait for the cluster-version operator" in [step.title for step in BOOTSTRAP.steps(openshift)]
    pods = StaticPods("etcd", "kube-apiserver", "kube-scheduler")
    machines_of(site).responders.append(pods)
    seen = controllers_condition().check.judge(site)
    assert (seen.outcome, seen.evidence) == (Outcome.FAILED, "kube-controller-manager (port 10257) does not listen")
    pods.running.add("kube-controller-manager")
    assert controllers_condition().check.judge(site).outcome is Outcome.PASSED


@pytest.mark.real(*PROGRAMS)
def test_a_bootstrap_machine_that_registered_is_found(bootstrapping: Site, shelf: Stock) -> None:
    assert no_node_condition().check.judge(bootstrapping).outcome is Outcome.PASSED
    name = bootstrapping.cluster.bootstrap.name
    shelf.put(node(name, "192.0.2.1"))
    assert no_node_condition().check.judge(bootstrapping).evidence == f"{name} is registered as a node"


def titles(site: Site) -> list[str]:
    return [step.title for step in MASTERS.steps(site)]


def test_kubernetes_needs_all_of_it_and_openshift_does_the_rest_itself(
    tmp_path: Path, smoke_test: MadeUpSmokeTest
) -> None:
    site = live_site(tmp_path, masters=2)
    assert titles(site) == [
        "install master-0",
        "install master-1",
        "approve the masters' certificates",
        "label the masters",
        "wait for Services",
        "wait for the tunnel's agents",
    ]
    site.smoke_test = smoke_test
    assert titles(site)[6:] == [
        "create a webhook in a pod on master-0",
        "wait for the webhook's pod",
        "call the webhook through the tunnel",
    ]
    openshift = live_site(tmp_path, profile=OPENSHIFT)
    assert titles(openshift) == [
        "install master-0",
        "approve the masters' certificates",
        "wait for the control plane's operators",
    ]
    assert "operators-report" in [check.id for check in MASTERS.checks(openshift)]


def test_after_the_pivot_nobody_waits_for_the_tunnel_or_asks_through_it(
    tmp_path: Path, smoke_test: MadeUpSmokeTest
) -> None:
    site = live_site(tmp_path)
    site.smoke_test = smoke_test
    (master,) = site.cluster.masters
    machines_of(site).responders.append(Etcdctl([Row(2, master.name, peer_url(master))]))
    for step in MASTERS.steps(site)[-4:]:
        step.act()
    assert seen_by(site) == []


@pytest.mark.real(*PROGRAMS)
def test_masters_are_labelled_and_labelling_twice_is_fine(tmp_path: Path, plane: ControlPlane, shelf: Stock) -> None:
    site = live_site(tmp_path, plane)
    (master,) = site.cluster.masters
    shelf.put(node(master.name, str(master.address)))
    condition = labelled_condition([master])
    assert condition.check.judge(site).evidence == (
        f"{master.name} lacks the labels {kube.CONTROL_PLANE_LABEL}, {kube.MASTER_LABEL}"
    )
    (label,) = [step for step in MASTERS.steps(site) if step.title == "label the masters"]
    label.act()
    label.act()
    assert condition.check.judge(site).outcome is Outcome.PASSED


def test_services_are_asked_from_each_node_with_the_clusters_authority(tmp_path: Path) -> None:
    site = live_site(tmp_path, masters=2)
    given: list[bytes] = []

    def curl(node_id: str, command: tuple[str, ...], stdin: bytes) -> Done:
        given.append(stdin)
        return Done(0, b"ok", b"") if node_id == "master-0" else Done(28, b"", b"curl: (28) Connection timed out")

    machines_of(site).responders.append(curl)
    condition = service_condition(site.cluster.masters)
    assert condition.check.judge(site).evidence == "master-1: curl: (28) Connection timed out"
    assert condition.known_failures[0].hint.startswith("nothing translates Service addresses")
    assert [call.split()[-1] for call in machines_of(site).calls] == ["https://172.30.0.1/readyz"] * 2
    assert all(b"BEGIN CERTIFICATE" in one for one in given)
    assert service_condition(site.cluster.masters[:1]).check.judge(site).outcome is Outcome.PASSED


def test_an_answer_that_is_not_ok_is_not_taken_for_it(tmp_path: Path) -> None:
    site = live_site(tmp_path)
    machines_of(site).responders.append(lambda node_id, command, stdin: Done(0, b"<html>", b""))
    assert service_condition(site.cluster.masters).check.judge(site).evidence == "master-0: <html>"


def test_every_worker_is_installed_and_its_boot_is_noted(tmp_path: Path) -> None:
    site = live_site(tmp_path, workers=2)
    for _ in range(2):
        for step in WORKERS.steps(site):
            step.act()
    assert machines_of(site).calls == ["install worker-0", "install worker-1"]
    assert set(site.notes) == {started_key(node) for node in site.cluster.workers}


def test_it_is_done_when_all_of_them_run(tmp_path: Path) -> None:
    site = live_site(tmp_path, workers=2)
    assert {check.judge(site).outcome for check in WORKERS.checks(site)} == {Outcome.FAILED}
    switch_on(site)
    assert {check.judge(site).outcome for check in WORKERS.checks(site)} == {Outcome.PASSED}
