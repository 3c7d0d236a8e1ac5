"""`stage doctor` on files and the record: its diagnoses, and how it recognises a failure."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.diagnosed_clusters import examined, make_cluster_directory, site_of
from tests.support.hardway_workspace import make_directory
from tests.support.live_site import live_site
from tests.support.recording_machines import RecordingMachines

from umbilical.hardway import workspace
from umbilical.hardway.diagnosis import Diagnosis, examine_record, files_to_check, hinted, lesson_live, lesson_of
from umbilical.hardway.doctor import known_failures
from umbilical.hardway.machines.interface import BackendServer
from umbilical.hardway.stages import catalogue
from umbilical.hardway.state import RunState, StageRecord, StageStatus
from umbilical.hardway.waiting import KnownFailure

FAILURE = {
    "code": "UMB725",
    "what": "timed out waiting for the API",
    "why": "connection refused",
    "next": "umbilical stage retry 10",
}
KNOWN = [KnownFailure("refused", "nothing listens yet")]


def test_a_diagnosis_is_three_lines_and_names_what_it_is_known_as() -> None:
    told = str(
        Diagnosis("HA-01", "artifacts of stage 02", "not so", "plain HTTP", "umbilical stage retry 2", "httpchk")
    )
    assert told == (
        "HA-01 artifacts of stage 02: not so\n"
        "  why: plain HTTP\n"
        "  next: umbilical stage retry 2 (same symptom as lesson httpchk: umbilical explain httpchk)"
    )


def test_a_lesson_is_known_by_rule_and_words_together() -> None:
    assert lesson_of("PKI-01", "tls/etcd-serving-bootstrap.crt lacks clientAuth") == "etcd-serving"
    assert lesson_of("PKI-01", "tls/etcd-peer-master-0.crt lacks serverAuth") == ""
    assert lesson_of("PKI-03", "tls/etcd-serving-bootstrap.crt lacks clientAuth") == ""


def test_a_live_lesson_is_known_by_what_machines_say() -> None:
    assert lesson_live("its health check returned L7RSP") == "httpchk"
    assert lesson_live("its health check returned L7STS, and it is ready over TLS") == "httpchk"
    assert lesson_live("its health check returned L7STS") == ""
    assert lesson_live("kube-proxy.yaml is not in /etc/kubernetes/manifests of worker-0") == "no-proxy"
    assert lesson_live("L7OK") == ""


def test_a_known_failure_brings_its_hint_before_the_usual_remedy() -> None:
    assert hinted("connection refused", "try again", KNOWN) == "nothing listens yet; then try again"
    assert hinted("x509", "try again", KNOWN) == "try again"


def recorded(record: StageRecord, *, is_locked: bool = False) -> list[str]:
    state = RunState(stages={10: record})
    return [str(one) for one in examine_record(catalogue.stages(), state, lambda stage: KNOWN, is_locked=is_locked)]


def test_the_stage_that_failed_is_told_in_its_own_words_with_what_is_known() -> None:
    (told,) = recorded(StageRecord(StageStatus.FAILED, failure=FAILURE))
    assert told == (
        "UMB725 stage 10 bootstrap: timed out waiting for the API\n"
        "  why: connection refused\n"
        "  next: nothing listens yet; then umbilical stage retry 10"
    )


def test_a_stage_that_was_killed_is_told_unless_somebody_works_on_it_and_one_that_is_done_is_not() -> None:
    record = StageRecord(StageStatus.RUNNING)
    assert len(recorded(record)) == 1
    assert recorded(record, is_locked=True) == []
    assert len(recorded(replace(record, status=StageStatus.INTERRUPTED))) == 1
    assert recorded(StageRecord(StageStatus.DONE)) == recorded(StageRecord()) == []


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_cluster_directory(tmp_path_factory.mktemp("doctor") / "c", "kubernetes")


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "c")


def test_nothing_is_wrong_with_what_is_not_written_yet(tmp_path: Path) -> None:
    assert examined(make_directory(tmp_path / "new")) == []


def test_stages_that_wrote_nothing_are_judged_as_they_would_be(folder: Path) -> None:
    for name in ("ignition", "manifests", "static-pods", "late-static-pods"):
        shutil.rmtree(folder / "artifacts" / name)
    assert examined(folder) == []
    site, on_disk = site_of(folder), workspace.read_artifacts(folder)
    assert "ignition/bootstrap.ign" in files_to_check(site, on_disk)


def test_a_file_that_is_gone_while_others_of_its_stage_are_there_is_missing(folder: Path) -> None:
    (folder / "artifacts" / "ignition" / "bootstrap.ign").unlink()
    found = examined(folder)
    assert found
    assert any("bootstrap.ign" in one.why for one in found)


def test_a_change_that_no_rule_knows_is_still_told(folder: Path) -> None:
    path = folder / "artifacts" / "infrastructure" / "dns" / "Corefile"
    path.write_bytes(path.read_bytes() + b"# mine\n")
    (found,) = examined(folder)
    assert found.id == "ART"
    assert found.why == "infrastructure/dns/Corefile changed"


def test_a_file_too_many_is_told_where_all_files_are_taken(folder: Path) -> None:
    path = folder / "artifacts" / "manifests" / "09-mine.yaml"
    path.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: kube-system}\n")
    (found,) = examined(folder)
    assert found.why == "manifests/09-mine.yaml left over"


def test_what_stages_know_of_failures_is_collected_once(tmp_path: Path) -> None:
    site = live_site(tmp_path)
    of_stages = {stage.number: [one.hint for one in known_failures(site, stage)] for stage in catalogue.stages()}
    for hints in of_stages.values():
        assert len(hints) == len(set(hints))
        assert any("umbilical stage logs NODE" in hint for hint in hints)
        assert any("check-ssl" in hint for hint in hints)
    assert [number for number, hints in of_stages.items() if any("logs bootstrap lists" in one for one in hints)] == [
        10
    ]


def test_files_come_before_machines_which_are_looked_at_only_if_there_are_any(folder: Path) -> None:
    (folder / "artifacts" / "tls" / "etcd-signer.key").chmod(0o644)
    machines = RecordingMachines()
    assert [one.id for one in examined(folder, machines)] == ["PKI-08"]
    machines.servers = [BackendServer("api", "bootstrap.ocp4.example.com", False, "L7RSP")]
    assert [one.id for one in examined(folder, machines)] == ["PKI-08", "balancer"]
