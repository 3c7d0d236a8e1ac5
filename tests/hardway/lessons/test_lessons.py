"""Every lesson: it breaks artifacts, the doctor diagnoses it, --mend restores every byte."""

import shutil
from pathlib import Path

import pytest
from tests.support import hardway
from tests.support.diagnosed_clusters import examined, make_cluster_directory, site_of
from tests.support.hardway_everything import everything
from tests.support.hardway_workspace import contents, make_directory
from tests.support.live_site import machines_of
from tests.support.recording_machines import RecordingMachines

from umbilical.fault import Fault, HardwayError
from umbilical.hardway import workspace
from umbilical.hardway.artifacts import layout
from umbilical.hardway.config.cluster import ClusterProfile
from umbilical.hardway.lessons import active_lesson, catalogue
from umbilical.hardway.lessons.active_lesson import find_lesson
from umbilical.hardway.lessons.catalogue import LESSONS
from umbilical.hardway.lessons.lesson import ArtifactCopy, Lesson, MissingArtifact
from umbilical.hardway.lint.facts import LintFacts
from umbilical.hardway.machines.interface import BackendServer
from umbilical.hardway.site import Site
from umbilical.pki.certificate import read_certificates
from umbilical.pki.profiles import Usage

CASES = [(profile, lesson) for lesson in LESSONS for profile in sorted(lesson.profiles, key=lambda one: one.value)]
FROM_THE_LOG = {
    *("etcd-serving", "apiserver-localhost", "apiserver-bootstrap-address", "bootstrap-kubelet", "httpchk"),
    *("feature-gate", "proxy-client", "kubelet-ca", "path-twice", "etcd-name", "etcd-prefix", "wrong-proxy"),
    *("no-proxy", "infrastructure-status", "agent-port"),
}


@pytest.fixture(scope="module")
def patients(tmp_path_factory: pytest.TempPathFactory) -> dict[ClusterProfile, Path]:
    return {one: make_cluster_directory(tmp_path_factory.mktemp(one.value) / "c", one.value) for one in ClusterProfile}


def active(folder: Path) -> active_lesson.ActiveLesson:
    found = active_lesson.current(folder)
    assert found is not None
    return found


@pytest.mark.parametrize(("profile", "lesson"), CASES, ids=lambda one: getattr(one, "id", getattr(one, "value", "")))
def test_the_doctor_names_a_lesson_and_is_content_when_it_is_mended(
    profile: ClusterProfile, lesson: Lesson, patients: dict[ClusterProfile, Path]
) -> None:
    folder = patients[profile]
    before = contents(folder)
    active_lesson.spoil_artifacts(folder, workspace.read_config(folder).cluster, lesson, hardway.NOW)
    first = examined(folder)[0]
    assert first.lesson == lesson.id
    assert first.id in lesson.rules
    current = active(folder)
    assert current.lesson is lesson
    assert set(active_lesson.mend_artifacts(folder, current)) == set(current.left)
    assert contents(folder) == before


def test_the_doctor_is_content_with_what_nobody_broke(patients: dict[ClusterProfile, Path]) -> None:
    assert [examined(folder) for folder in patients.values()] == [[], []]


def test_the_faults_of_the_log_are_among_them() -> None:
    ids = [lesson.id for lesson in LESSONS]
    assert set(ids) >= FROM_THE_LOG
    assert len(set(ids)) == len(ids)


def test_a_story_does_not_tell_the_answer() -> None:
    assert [one.id for one in LESSONS if one.cause in one.symptoms or one.permanent_fix in one.symptoms] == []


def test_an_explanation_tells_it() -> None:
    told = {entry.name: entry for entry in catalogue.entries()}
    assert set(told) == {lesson.id for lesson in LESSONS}
    assert "clientAuth" in told["etcd-serving"].without
    assert "With --live" in told["httpchk"].without


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_cluster_directory(tmp_path_factory.mktemp("lesson") / "c", "kubernetes")


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "c")


def spoil(folder: Path, name: str = "httpchk") -> None:
    active_lesson.spoil_artifacts(folder, workspace.read_config(folder).cluster, find_lesson(name), hardway.NOW)


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
    assert active_lesson.current(folder) is None


def test_a_lesson_needs_what_it_spoils(tmp_path: Path) -> None:
    empty = make_directory(tmp_path / "empty")
    found = refusal(empty, "httpchk")
    assert found.code == "UMB753"
    assert "haproxy.bootstrap.cfg" in found.why


def test_what_was_mended_by_hand_stays_so(folder: Path) -> None:
    spoil(folder)
    path = folder / "artifacts" / "infrastructure" / "haproxy.final.cfg"
    path.write_bytes(b"mine\n")
    assert active_lesson.mend_artifacts(folder, active(folder)) == ["infrastructure/haproxy.bootstrap.cfg"]
    assert path.read_bytes() == b"mine\n"
    assert active_lesson.current(folder) is None


def test_keys_that_are_kept_aside_are_for_their_owner_alone(folder: Path) -> None:
    spoil(folder, "etcd-serving")
    kept = folder / ".umbilical" / "lesson"
    assert (kept / "tls" / "etcd-serving-bootstrap.key").stat().st_mode & 0o777 == 0o600
    assert kept.stat().st_mode & 0o077 == 0
    assert b"PRIVATE KEY" not in (folder / ".umbilical" / "lesson.json").read_bytes()


def test_a_note_that_cannot_be_read_is_told_with_the_way_out(folder: Path) -> None:
    spoil(folder)
    (folder / ".umbilical" / "lesson.json").write_text("{")
    with pytest.raises(HardwayError, match="UMB754"):
        active_lesson.current(folder)
    active_lesson.end(folder)
    assert active_lesson.current(folder) is None


def test_a_lesson_in_artifacts_only_cannot_be_live(folder: Path) -> None:
    with pytest.raises(HardwayError, match="UMB753"):
        active_lesson.spoil_machines(site_of(folder), find_lesson("kubelet-ca"))
    assert active_lesson.current(folder) is None


@pytest.fixture
def live(folder: Path) -> Site:
    """A site whose load balancer has a lesson under way."""
    site = site_of(folder, RecordingMachines())
    machines_of(site).servers = [BackendServer("api", site.cluster.bootstrap.name, True, "L7OK")]
    active_lesson.spoil_machines(site, find_lesson("httpchk"))
    return site


def test_a_live_lesson_is_noted_and_mended(live: Site, folder: Path) -> None:
    spoiled = machines_of(live).balancer_config
    assert active(folder).is_live
    assert active_lesson.mend_machines(live, active(folder))
    assert machines_of(live).balancer_config != spoiled
    assert active_lesson.current(folder) is None


def test_a_live_lesson_that_cannot_begin_is_not_under_way(folder: Path) -> None:
    machines = RecordingMachines()
    machines.failing["set_balancer"] = Fault("UMB736", "no load balancer", "it does not run", "stage run 02")
    with pytest.raises(Fault, match="UMB736"):
        active_lesson.spoil_machines(site_of(folder, machines), find_lesson("httpchk"))
    assert active_lesson.current(folder) is None


def test_a_live_lesson_ends_when_its_machines_are_gone(live: Site, folder: Path) -> None:
    machines_of(live).servers = []
    machines_of(live).calls.clear()
    assert not active_lesson.mend_machines(live, active(folder))
    assert machines_of(live).calls == []
    assert active_lesson.current(folder) is None


@pytest.fixture
def scratch() -> ArtifactCopy:
    subject = everything(ClusterProfile.KUBERNETES)
    return ArtifactCopy(subject.cluster, subject.assets, hardway.NOW)


def node_file(scratch: ArtifactCopy, node_id: str, path: str) -> bytes:
    facts = LintFacts(scratch.cluster, scratch.assets, hardway.NOW, True)
    return facts.node_file(scratch.cluster.node(node_id), path)


def test_the_original_stays_as_it_is(scratch: ArtifactCopy) -> None:
    before = everything(ClusterProfile.KUBERNETES).assets["infrastructure/haproxy.final.cfg"].content
    scratch.replace("infrastructure/haproxy.final.cfg", "timeout", "patience")
    assert [asset.path for asset in scratch.changed] == ["infrastructure/haproxy.final.cfg"]
    assert [asset.content for asset in scratch.before] == [before]


def test_what_is_removed_is_known(scratch: ArtifactCopy) -> None:
    scratch.remove("manifests/03-rbac.yaml")
    assert scratch.removed == ["manifests/03-rbac.yaml"]
    assert [asset.path for asset in scratch.before] == ["manifests/03-rbac.yaml"]
    with pytest.raises(MissingArtifact):
        scratch.remove("manifests/03-rbac.yaml")


def test_a_certificate_is_issued_again_by_its_signer_also_where_a_node_gets_it(scratch: ArtifactCopy) -> None:
    old = scratch.content("tls/etcd-serving-bootstrap.crt")
    scratch.reissue("etcd-serving-bootstrap", usages=(Usage.SERVER,))
    new = scratch.content("tls/etcd-serving-bootstrap.crt")
    before, after = read_certificates(old)[0], read_certificates(new)[0]
    assert (after.subject, after.ip_addresses, after.issuer) == (before.subject, before.ip_addresses, before.issuer)
    assert after.usages == ("serverAuth",)
    assert node_file(scratch, "bootstrap", f"{layout.NODE_SECRETS}/etcd-serving-bootstrap.crt") == new


def test_a_static_pod_is_changed_where_its_node_gets_it_too(scratch: ArtifactCopy) -> None:
    scratch.edit_pod("bootstrap", "etcd-bootstrap.yaml", "--name=", "--nome=")
    assert b"--nome=" in scratch.content("static-pods/bootstrap/etcd-bootstrap.yaml")
    assert b"--nome=" in node_file(scratch, "bootstrap", f"{layout.NODE_MANIFESTS}/etcd-bootstrap.yaml")


def test_a_static_pod_is_removed_from_its_node_too(scratch: ArtifactCopy) -> None:
    scratch.remove_pod("worker-0", "kube-proxy.yaml")
    assert "static-pods/worker-0/kube-proxy.yaml" in scratch.removed
    facts = LintFacts(scratch.cluster, scratch.assets, hardway.NOW, True)
    config = facts.ignition(scratch.cluster.node("worker-0"))
    assert config.file(f"{layout.NODE_MANIFESTS}/kube-proxy.yaml") is None


@pytest.mark.parametrize("path", ["nowhere.yaml", "infrastructure/haproxy.final.cfg"])
def test_what_is_not_there_cannot_be_spoiled(scratch: ArtifactCopy, path: str) -> None:
    with pytest.raises(MissingArtifact):
        scratch.replace(path, "a text that nobody wrote", "")


def test_a_file_of_a_node_is_changed_by_its_path(scratch: ArtifactCopy) -> None:
    scratch.edit_file("worker-0", "/etc/hostname", b"worker-0", b"worker-9")
    assert node_file(scratch, "worker-0", "/etc/hostname").startswith(b"worker-9")
    with pytest.raises(MissingArtifact):
        scratch.edit_file("worker-0", "/etc/nothing", b"a", b"b")
