"""`stage doctor` on running machines."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.live_site import live_site, machines_of, switch_on

from umbilical.checks.check import Finding, Outcome
from umbilical.fault import Fault
from umbilical.hardway import doctor, kube
from umbilical.hardway.machines.interface import BackendServer, InfraProbe, Power
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Stage
from umbilical.hardway.stages import catalogue
from umbilical.hardway.stages.live import LiveStage
from umbilical.hardway.state import RunState, StageRecord, StageStatus
from umbilical.host.waiting import NotYet

STAGES = catalogue.stages()
# Port 1 of loopback, where nothing listens.
NOBODY = """\
apiVersion: v1
kind: Config
current-context: a
clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: a, user: {token: none}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
"""


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = live_site(tmp_path)
    switch_on(made)
    for node in made.cluster.nodes:
        for path in made.assets:
            if path.startswith(f"static-pods/{node.id}/"):
                name = path.rpartition("/")[2]
                machines_of(made).files[node.id, f"/etc/kubernetes/manifests/{name}"] = b"pod"
    return made


def done(*numbers: int) -> RunState:
    return RunState(stages={number: StageRecord(StageStatus.DONE) for number in numbers})


def test_without_machines_there_is_nothing_to_look_at(tmp_path: Path) -> None:
    site = live_site(tmp_path)
    assert not doctor.are_up(site)
    machines_of(site).powers["bootstrap"] = Power.ON
    assert doctor.are_up(site)


def test_a_server_that_is_asked_in_the_wrong_language_is_known_at_once(site: Site) -> None:
    name = site.cluster.bootstrap.name
    machines_of(site).servers = [BackendServer("api", name, False, "L7RSP")]
    (found,) = doctor.balancer_signal(site, RunState())
    assert found.lesson == "httpchk"
    assert found.hop == f"load balancer to {name}"
    assert "check-ssl is missing" in found.remedy


def test_looks_that_the_load_balancer_keeps_from_the_api_are_counted_and_not_listed(site: Site) -> None:
    name = site.cluster.bootstrap.name
    machines_of(site).servers = [BackendServer("api", name, False, "L7RSP")]
    nobody = site.folder / "kubeconfig"
    nobody.write_text(NOBODY)
    site.kubeconfig = lambda address: nobody
    found = doctor.examine_machines(site, done(10, 11), STAGES)
    assert found[0].lesson == "httpchk"
    assert "checks that need the API fail too" in found[0].why
    assert not [one for one in found[1:] if "UMB603" in (one.id, one.why[:6])]


def test_an_api_that_is_not_up_yet_is_no_complaint_before_its_stage_is_done(site: Site) -> None:
    machines_of(site).servers = [BackendServer("api", site.cluster.bootstrap.name, False, "L4CON")]
    assert list(doctor.balancer_signal(site, RunState())) == []
    (found,) = doctor.balancer_signal(site, done(10))
    assert found.what == "no API server is up"
    assert "nothing listens on the port" in found.remedy


def test_a_load_balancer_that_is_gone_does_not_silence_the_doctor(site: Site) -> None:
    """Where `stage status` fails a check, something is wrong."""
    dead = Fault("UMB736", "the load balancer did not answer", "connection refused", "umbilical stage run 02")
    machines_of(site).failing["balancer"] = dead
    machines_of(site).probes = [InfraProbe("balancer", False, "no process listens", "umbilical stage run 02")]
    found = doctor.examine(site, done(2), {}, STAGES, is_locked=False)
    assert {"UMB736", "INFRA-balancer"} <= {one.id for one in found}


def test_the_checks_of_all_finished_stages_are_asked_each_once(site: Site) -> None:
    machines_of(site).machine_survey = replace(machines_of(site).machine_survey, programs={"runc": ""})
    found = doctor.examine(site, done(1), {}, STAGES, is_locked=False)
    assert [one.hop for one in found if one.id == "PRE-01"] == ["stage 01 prerequisites"]
    machines_of(site).powers.clear()
    machines_of(site).servers.clear()
    machines_of(site).failing["enter"] = Fault("UMB815", "the machines are not up", "no lab", "umbilical stage run 02")
    found = doctor.examine(site, done(9, 10, 11), {}, STAGES, is_locked=False)
    assert [one.hop for one in found if one.id == "UMB815"] == ["stage 09 install"]


def test_a_static_pod_that_is_gone_is_named_with_its_node(site: Site) -> None:
    assert list(doctor.files_signal(site, RunState())) == []
    del machines_of(site).files["worker-0", "/etc/kubernetes/manifests/kube-proxy.yaml"]
    (found,) = doctor.files_signal(site, RunState())
    assert found.lesson == "no-proxy"
    assert found.hop == "kubelet of worker-0"


def test_masters_have_more_files_when_their_control_plane_is_there(site: Site) -> None:
    missing = {one.why.partition(" ")[0] for one in doctor.files_signal(site, done(12))}
    assert missing == {"etcd.yaml", "kube-apiserver.yaml", "kube-controller-manager.yaml", "kube-scheduler.yaml"}


def test_the_bootstrap_node_is_left_alone_once_the_pivot_has_begun(site: Site) -> None:
    machines_of(site).files = {
        key: content for key, content in machines_of(site).files.items() if key[0] != "bootstrap"
    }
    assert len(list(doctor.files_signal(site, RunState()))) > 3
    assert list(doctor.files_signal(site, done(13))) == []


@pytest.mark.parametrize(
    ("reads", "lessons"), [("ok", ["httpchk"]), ("not yet", [])], ids=["the check is wrong", "the server is not ready"]
)
def test_a_refusal_is_the_checks_fault_only_if_the_server_is_ready_over_tls(
    site: Site, reads: str, lessons: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ready_text(site: Site, address: object) -> str:
        if reads != "ok":
            raise NotYet(reads)
        return reads

    monkeypatch.setattr(kube, "ready_text", ready_text)
    machines_of(site).servers = [BackendServer("api", site.cluster.bootstrap.name, False, "L7STS")]
    assert [one.lesson for one in doctor.balancer_signal(site, RunState())] == lessons


def test_checks_of_stages_that_are_done_are_asked(site: Site) -> None:
    machines_of(site).probes = [InfraProbe("vip", False, "192.168.126.10 is on no interface", "ip addr add")]
    found = doctor.examine_machines(site, done(2), STAGES)
    assert "192.168.126.10 is on no interface" in [one.why for one in found]


def test_a_check_that_fails_gets_the_hints_of_its_own_stage(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = "worker-0:10250: [Errno 111] Connection refused"

    def findings(stage: Stage, _: Site) -> list[Finding]:
        return [Finding("registered-workers", "t", "w", "f", Outcome.FAILED, seen)] if stage.number == 15 else []

    monkeypatch.setattr(doctor, "findings", findings)
    (found,) = [one for one in doctor.examine_machines(site, done(10, 11, 15), STAGES) if one.why == seen]
    remedy = "its kubelet does not run: umbilical stage logs NODE kubelet; then f"
    assert found.remedy == remedy
    failure = {"what": "not in time", "why": seen, "next": "f"}
    state = RunState(stages={15: StageRecord(StageStatus.FAILED, failure=failure)})
    assert remedy in [one.remedy for one in doctor.examine(site, state, {}, STAGES, is_locked=False)]


def test_what_cannot_be_asked_is_told_and_does_not_silence_the_rest(site: Site) -> None:
    machines_of(site).failing["enter"] = Fault("UMB738", "no lab", "it is down", "umbilical stage run 02")
    del machines_of(site).files["worker-0", "/etc/kubernetes/manifests/kube-proxy.yaml"]
    found = doctor.examine_machines(site, done(10, 11), STAGES)
    assert "no-proxy" in [one.lesson for one in found]
    assert "UMB738" in [one.id for one in found]


def test_every_hint_works_in_a_lab_too(site: Site) -> None:
    """Its nodes have neither crictl nor systemd's journal: `umbilical stage logs` shows what they would."""
    live = [stage for stage in STAGES if isinstance(stage, LiveStage)]
    fixes = [condition.fix for stage in live for condition in stage.make_conditions(site)]
    hints = [*fixes, *(one.hint for stage in STAGES for one in doctor.known_failures(site, stage))]
    assert [hint for hint in hints if "crictl" in hint or "journalctl" in hint] == []
    assert len([hint for hint in hints if "umbilical stage logs" in hint]) > 5
