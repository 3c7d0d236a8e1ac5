"""The same state gives the same bytes, and a plan says what would differ."""

import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from tests.support import hardway
from tests.support.hardway_workspace import contents, make_directory, write_release

from umbilical.assets.hardway.diff.part import Change
from umbilical.hardway import rendering
from umbilical.hardway.identity import read_identity
from umbilical.hardway.workspace import read_artifacts
from umbilical.pki.errors import PkiError

NOW = hardway.NOW
PROFILES = ["kubernetes", "openshift"]


@pytest.fixture(params=PROFILES)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return make_directory(tmp_path / "cluster", request.param)


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Directories of both profiles with everything written: drawing keys takes its time."""
    made = {}
    for profile in PROFILES:
        made[profile] = make_directory(tmp_path_factory.mktemp(profile) / "cluster", profile)
        rendering.write(made[profile], rendering.render(made[profile], NOW))
    return made


@pytest.fixture(params=PROFILES)
def written(request: pytest.FixtureRequest, templates: dict[str, Path], tmp_path: Path) -> Path:
    return shutil.copytree(templates[request.param], tmp_path / "written")


@pytest.fixture
def lab(templates: dict[str, Path], tmp_path: Path) -> Path:
    return shutil.copytree(templates["kubernetes"], tmp_path / "lab")


def test_rendering_writes_nothing(folder: Path) -> None:
    before = contents(folder)
    assert rendering.render(folder, NOW).plan()
    assert contents(folder) == before


def test_the_same_state_gives_the_same_bytes(written: Path) -> None:
    first = contents(written)
    later = rendering.render(written, NOW + timedelta(hours=3))
    assert later.plan() == []
    assert later.renewed == ()
    rendering.write(written, later)
    assert contents(written) == first


def test_modes_are_exact_and_no_scratch_is_left(written: Path) -> None:
    files = contents(written)
    artifacts = {name.removeprefix("artifacts/"): mode for name, (_, mode) in files.items() if "artifacts/" in name}
    made = rendering.render(written, NOW).made
    assert artifacts == {asset.path: asset.mode for asset in made.tree}
    assert {mode for name, (_, mode) in files.items() if name.endswith((".key", ".kubeconfig", ".ign"))} == {0o600}


def test_everything_is_new_at_first(folder: Path) -> None:
    rendered = rendering.render(folder, NOW)
    assert {part.change for part in rendered.plan()} == {Change.CREATED}
    assert len(rendered.plan()) == len(rendered.made.tree)


def test_age_alone_makes_nothing_anew(written: Path) -> None:
    old = rendering.render(written, NOW + timedelta(days=300))
    assert (old.renewed, old.plan()) == ((), [])
    assert rendering.render(written, NOW + timedelta(days=300), renew_due=True).renewed


def test_a_change_of_the_file_changes_what_follows_from_it_and_nothing_else(lab: Path) -> None:
    make_directory(lab, networks__apiVip="192.168.126.20")
    parts = rendering.render(lab, NOW).plan()
    places = {part.place for part in parts}
    assert {part.change for part in parts} == {Change.CHANGED}
    assert "infrastructure/haproxy.bootstrap.cfg" in places
    assert "tls/kube-apiserver-lb-server.crt" in places
    assert "tls/kube-apiserver-lb-signer.crt" not in places
    assert "tls/etcd-signer.key" not in places


def test_a_node_that_is_gone_takes_its_files_with_it_but_no_key(tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "c", nodes__masters__count=2)
    rendering.write(folder, rendering.render(folder, NOW))
    make_directory(folder, nodes__masters__count=1)
    rendered = rendering.render(folder, NOW)
    removed = {part.place for part in rendered.plan() if part.change is Change.REMOVED}
    assert "ignition/master-1.ign" in removed
    assert not any(place.startswith("tls/") for place in removed)
    rendering.write(folder, rendered)
    assert not (folder / "artifacts/ignition/master-1.ign").exists()
    assert (folder / "artifacts/tls/etcd-peer-master-1.key").exists()
    assert rendering.render(folder, NOW).plan() == []


def test_a_file_that_somebody_changed_is_in_the_plan(lab: Path) -> None:
    path = lab / "artifacts/auth/admin.kubeconfig"
    path.chmod(0o644)
    (part,) = rendering.render(lab, NOW).plan()
    assert (part.place, part.parts[0].old, part.parts[0].new) == ("auth/admin.kubeconfig", "0644", "0600")
    rendering.write(lab, rendering.render(lab, NOW))
    assert path.stat().st_mode & 0o777 == 0o600


def test_rotation_makes_a_signer_and_all_that_it_signed_anew(lab: Path) -> None:
    before = contents(lab)
    rendered = rendering.render(lab, NOW, rotate=["etcd-signer"])
    assert {change.id for change in rendered.renewed} == {
        *("etcd-signer", "etcd-client", "etcd-peer-bootstrap", "etcd-peer-master-0"),
        *("etcd-serving-bootstrap", "etcd-serving-master-0"),
    }
    rendering.keep(lab, rendered)
    after = contents(lab)
    changed = {name for name in before if before[name] != after[name]}
    assert all(name.startswith("artifacts/tls/") and "etcd" in name for name in changed)
    assert {part.place for part in rendering.render(lab, NOW).plan()} >= {"ignition/bootstrap.ign"}


def test_what_is_unknown_cannot_be_rotated(lab: Path) -> None:
    with pytest.raises(PkiError, match="UMB710"):
        rendering.render(lab, NOW, rotate=["nonsense"])


def test_no_secret_is_in_a_plan(written: Path) -> None:
    signers = [path.stem for path in (written / "artifacts/tls").glob("*-signer.crt")]
    rendered = rendering.render(written, NOW, rotate=[*signers, "service-account"])
    told = repr(rendered.plan())
    for asset in [*rendered.made.tree, *read_artifacts(written).values()]:
        if asset.path.endswith(".key"):
            body = asset.content.splitlines()[2]
            assert body.decode() not in told
    assert "key differs" in told
    assert rendered.inputs.identity.kubeadmin_password not in told


def test_what_was_drawn_is_kept_before_all_else(folder: Path) -> None:
    rendered = rendering.render(folder, NOW)
    rendering.keep(folder, rendered)
    assert read_identity(folder) == rendered.inputs.identity
    again = rendering.render(folder, NOW)
    assert (again.renewed, again.inputs.identity) == ((), rendered.inputs.identity)
    assert again.made.hashes == rendered.made.hashes


def test_without_a_release_the_rest_is_rendered(tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "c", "openshift", release=False)
    rendered = rendering.render(folder, NOW)
    rendering.keep(folder, rendered)
    assert not rendered.has_release
    assert not any(part.place.startswith("ignition/") for part in rendered.plan())
    assert rendered.hashes["ignition"] == rendering.NOT_MADE
    write_release(folder / "release")
    full = rendering.render(folder, NOW)
    assert full.has_release
    assert full.hashes["ignition"] != rendering.NOT_MADE
    assert full.hashes["pki"] == rendered.hashes["pki"]
    assert any(part.place == "ignition/bootstrap.ign" for part in full.plan())


def test_a_killed_write_is_finished_by_the_next(tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "c")
    rendered = rendering.render(folder, NOW)
    rendering.keep(folder, rendered)
    (folder / "artifacts/.artifacts.killed").mkdir()
    (folder / "artifacts/.artifacts.killed/half").write_bytes(b"x")
    rendering.write(folder, rendering.render(folder, NOW))
    assert rendering.render(folder, NOW).plan() == []
