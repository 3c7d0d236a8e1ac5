"""A lesson from its beginning to its end, and what is refused on the way."""

import shutil
from pathlib import Path

import pytest
from tests.support import hardway
from tests.support.hardway_patients import make_patient, site_of
from tests.support.hardway_workspace import contents, make_directory
from tests.support.recording_machines import RecordingMachines

from umbilical.fault import Fault
from umbilical.hardway import workspace
from umbilical.hardway.errors import HardwayError
from umbilical.hardway.lessons import sitting
from umbilical.hardway.lessons.sitting import find_lesson
from umbilical.hardway.machines import BackendServer


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_patient(tmp_path_factory.mktemp("lesson") / "c", "kubernetes")


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "c")


def spoil(folder: Path, name: str = "httpchk") -> None:
    sitting.spoil_artifacts(folder, workspace.read_config(folder).cluster, find_lesson(name), hardway.NOW)


def refusal(folder: Path, name: str) -> HardwayError:
    with pytest.raises(HardwayError) as caught:
        spoil(folder, name)
    return caught.value


def test_an_unknown_lesson_is_refused_with_the_nearest_names() -> None:
    with pytest.raises(HardwayError) as caught:
        find_lesson("httpcheck")
    assert caught.value.code == "UMB751"
    assert "httpchk" in caught.value.why


def test_a_second_lesson_has_to_wait(folder: Path) -> None:
    spoil(folder)
    before = contents(folder)
    assert refusal(folder, "kubelet-ca").code == "UMB752"
    assert contents(folder) == before


def test_a_lesson_for_another_profile_is_refused(folder: Path) -> None:
    found = refusal(folder, "feature-gate")
    assert found.code == "UMB753"
    assert "openshift" in found.why
    assert sitting.current(folder) is None


def test_a_lesson_needs_what_it_spoils(tmp_path: Path) -> None:
    empty = make_directory(tmp_path / "empty")
    found = refusal(empty, "httpchk")
    assert found.code == "UMB753"
    assert "haproxy.bootstrap.cfg" in found.why


def test_what_was_mended_by_hand_stays_so(folder: Path) -> None:
    spoil(folder)
    path = folder / "artifacts" / "infrastructure" / "haproxy.final.cfg"
    path.write_bytes(b"mine\n")
    under_way = sitting.current(folder)
    assert under_way is not None
    assert sitting.mend_artifacts(folder, under_way) == ["infrastructure/haproxy.bootstrap.cfg"]
    assert path.read_bytes() == b"mine\n"
    assert sitting.current(folder) is None


def test_keys_that_are_kept_aside_are_for_their_owner_alone(folder: Path) -> None:
    spoil(folder, "etcd-serving")
    kept = folder / ".umbilical" / "lesson"
    assert (kept / "tls" / "etcd-serving-bootstrap.key").stat().st_mode & 0o777 == 0o600
    assert kept.stat().st_mode & 0o077 == 0
    assert b"PRIVATE KEY" not in (folder / ".umbilical" / "lesson.json").read_bytes()


def test_a_note_that_cannot_be_read_is_told_with_the_way_out(folder: Path) -> None:
    spoil(folder)
    (folder / ".umbilical" / "lesson.json").write_text("{")
    with pytest.raises(HardwayError) as caught:
        sitting.current(folder)
    assert caught.value.code == "UMB754"
    sitting.end(folder)
    assert sitting.current(folder) is None


def test_a_lesson_in_artifacts_only_cannot_be_live(folder: Path) -> None:
    with pytest.raises(HardwayError) as caught:
        sitting.spoil_machines(site_of(folder), find_lesson("kubelet-ca"))
    assert caught.value.code == "UMB753"
    assert sitting.current(folder) is None


def test_a_live_lesson_is_noted_and_mended(folder: Path) -> None:
    machines = RecordingMachines()
    site = site_of(folder, machines)
    machines.servers = [BackendServer("api", site.cluster.bootstrap.name, True, "L7OK")]
    sitting.spoil_machines(site, find_lesson("httpchk"))
    spoiled = machines.balancer_config
    under_way = sitting.current(folder)
    assert under_way is not None
    assert under_way.is_live
    assert sitting.mend_machines(site, under_way)
    assert machines.balancer_config != spoiled
    assert sitting.current(folder) is None


def test_a_live_lesson_that_cannot_begin_is_not_under_way(folder: Path) -> None:
    machines = RecordingMachines()
    machines.failing["set_balancer"] = Fault("UMB736", "no load balancer", "it does not run", "stage run 02")
    with pytest.raises(Fault, match="UMB736"):
        sitting.spoil_machines(site_of(folder, machines), find_lesson("httpchk"))
    assert sitting.current(folder) is None


def test_a_live_lesson_ends_when_its_machines_are_gone(folder: Path) -> None:
    machines = RecordingMachines()
    site = site_of(folder, machines)
    machines.servers = [BackendServer("api", site.cluster.bootstrap.name, True, "L7OK")]
    sitting.spoil_machines(site, find_lesson("httpchk"))
    machines.servers = []
    machines.calls.clear()
    under_way = sitting.current(folder)
    assert under_way is not None
    assert not sitting.mend_machines(site, under_way)
    assert machines.calls == []
    assert sitting.current(folder) is None
