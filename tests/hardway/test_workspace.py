"""A cluster's directory: config, release, artifacts, rendering, and kubeconfigs by address."""

import ipaddress
import shutil
from datetime import timedelta
from functools import cache
from ipaddress import ip_address
from pathlib import Path

import pytest
import yaml
from tests.support import hardway, hardway_config
from tests.support.fixture_types import Patch
from tests.support.hardway_workspace import contents, make_directory, write_release
from tests.support.made_up_stages import make_site

from umbilical.fault import ClusterError, HardwayError, RenderError
from umbilical.hardway import rendering, workspace
from umbilical.hardway.artifacts.certificates import names
from umbilical.hardway.artifacts.diff_objects import DiffKind
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.config.cluster import ClusterProfile
from umbilical.hardway.pki.renewal import renew
from umbilical.hardway.site import ClusterApi
from umbilical.hardway.workspace import ADMIN, address_kubeconfig, kubeconfigs, read_artifacts, read_identity
from umbilical.manifests.tree import Asset

NOW = hardway.NOW
PROFILES = ["kubernetes", "openshift"]


def write(folder: Path, *assets: Asset, removed: tuple[str, ...] = ()) -> None:
    workspace.write_artifacts(folder, assets, removed)


def test_a_directory_without_its_file_is_none_of_a_cluster(tmp_path: Path) -> None:
    with pytest.raises(HardwayError) as refused:
        workspace.read_config(tmp_path)
    assert refused.value.code == "UMB701"
    assert "stage init" in refused.value.remedy


def test_a_wrong_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text("nmae: x")
    with pytest.raises(RenderError) as refused:
        workspace.read_config(tmp_path)
    assert (refused.value.code, str(tmp_path) in refused.value.what) == ("UMB700", True)


def test_artifacts_are_written_and_read_with_their_modes(tmp_path: Path) -> None:
    assets = (Asset("tls/a.key", b"1", 0o600), Asset("tls/a.crt", b"2", 0o644), Asset("run.sh", b"3", 0o555))
    write(tmp_path, *assets)
    assert workspace.read_artifacts(tmp_path) == {asset.path: asset for asset in assets}
    assert (tmp_path / "artifacts").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "artifacts/tls").stat().st_mode & 0o777 == 0o700


def test_what_is_to_go_goes_with_the_others(tmp_path: Path) -> None:
    write(tmp_path, Asset("a", b"1", 0o600), Asset("b", b"1", 0o600))
    write(tmp_path, Asset("a", b"2", 0o600), removed=("b",))
    assert contents(tmp_path) == {"artifacts/a": (b"2", 0o600)}


def test_scratch_files_and_work_directories_are_no_artifacts(tmp_path: Path) -> None:
    write(tmp_path, Asset(".tls.x", b"", 0o600), Asset("machine-config/work/x", b"", 0o600), Asset("a", b"", 0o600))
    write(tmp_path, Asset(".artifacts.killed/tls/a.key", b"", 0o600))
    assert list(workspace.read_artifacts(tmp_path)) == ["a"]


def test_what_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path, Asset("a", b"1", 0o600))
    (tmp_path / "artifacts/b/c").mkdir(parents=True)
    with pytest.raises(HardwayError, match="UMB714"):
        write(tmp_path, Asset("a", b"2", 0o600), Asset("b", b"2", 0o600))
    assert (tmp_path / "artifacts/a").read_bytes() == b"1"


def test_pairs_are_found_by_their_keys() -> None:
    files = ("tls/a.crt", "tls/a.key", "tls/b.pub", "tls/b.key", "tls/c.crt", "tls/d.key", "tls/bundles/e.crt")
    found = workspace.key_pairs({path: Asset(path, path.encode(), 0o600) for path in files})
    assert {name: (pair.certificate, pair.key) for name, pair in found.items()} == {
        "a": (b"tls/a.crt", b"tls/a.key"),
        "b": (b"tls/b.pub", b"tls/b.key"),
    }


def test_a_directory_of_ours_that_a_kill_left_half_filled_is_no_release_yet(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_bytes(hardway_config.content())
    (tmp_path / "release").mkdir()
    (tmp_path / "release/release.json").write_bytes(b"{}")
    assert workspace.read_payload(tmp_path, workspace.read_config(tmp_path).cluster) is None
    (tmp_path / "cluster.yaml").write_bytes(hardway_config.content(release__directory="release"))
    with pytest.raises(RenderError, match="UMB715"):
        workspace.read_payload(tmp_path, workspace.read_config(tmp_path).cluster)


def test_how_a_release_is_extracted_is_said_where_its_image_is_known(tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "c", "openshift", release=False)
    assert workspace.extraction_commands(folder, workspace.read_config(folder).cluster) == ()
    (folder / "cluster.yaml").write_bytes(hardway_config.content())
    info, extract = workspace.extraction_commands(folder, workspace.read_config(folder).cluster)
    assert info.output == f"{folder}/release/release.json"
    assert {f"{folder}/pull-secret.json", f"--to={folder}/release"} <= set(extract.arguments)


def test_a_directory_that_is_too_large_for_a_release_is_refused(tmp_path: Path, monkeypatch: Patch) -> None:
    folder = make_directory(tmp_path / "c", "openshift")
    monkeypatch.setattr(workspace, "MAX_RELEASE_FILES", 10)
    with pytest.raises(HardwayError, match="UMB714"):
        workspace.read_payload(folder, workspace.read_config(folder).cluster)


def test_a_pull_secret_is_named_from_the_file(tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "c", "openshift", release=False)
    cluster = workspace.read_config(folder).cluster
    assert workspace.read_pull_secret(folder, cluster) == hardway.PULL_SECRET
    (folder / "pull-secret.json").unlink()
    with pytest.raises(HardwayError, match="UMB702"):
        workspace.read_pull_secret(folder, cluster)


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


def test_everything_is_new_at_first_and_rendering_writes_nothing(folder: Path) -> None:
    before = contents(folder)
    rendered = rendering.render(folder, NOW)
    assert {part.change for part in rendered.plan()} == {DiffKind.CREATED}
    assert len(rendered.plan()) == len(rendered.made.tree)
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


def test_age_alone_makes_nothing_anew(written: Path) -> None:
    old = rendering.render(written, NOW + timedelta(days=300))
    assert (old.renewed, old.plan()) == ((), [])
    assert rendering.render(written, NOW + timedelta(days=300), renew_due=True).renewed


def test_a_change_of_the_file_changes_what_follows_from_it_and_nothing_else(lab: Path) -> None:
    make_directory(lab, networks__apiVip="192.168.126.20")
    parts = rendering.render(lab, NOW).plan()
    places = {part.place for part in parts}
    assert {part.change for part in parts} == {DiffKind.CHANGED}
    assert "infrastructure/haproxy.bootstrap.cfg" in places
    assert "tls/kube-apiserver-lb-server.crt" in places
    assert "tls/kube-apiserver-lb-signer.crt" not in places
    assert "tls/etcd-signer.key" not in places


def test_a_node_that_is_gone_takes_its_files_with_it_but_no_key(tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "c", nodes__masters__count=2)
    rendering.write(folder, rendering.render(folder, NOW))
    make_directory(folder, nodes__masters__count=1)
    rendered = rendering.render(folder, NOW)
    removed = {part.place for part in rendered.plan() if part.change is DiffKind.REMOVED}
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


def new_inputs() -> Inputs:
    cluster = hardway.cluster(ClusterProfile.KUBERNETES, 1, 0)
    made = renew(names(cluster), {}, cluster.terms, hardway.NOW)
    return Inputs(cluster, made.set, hardway.payload(ClusterProfile.KUBERNETES), hardway.identity())


@cache
def inputs() -> Inputs:
    return new_inputs()


def test_a_file_is_written_for_its_owner_once(tmp_path: Path) -> None:
    given = inputs()
    write = kubeconfigs(tmp_path, given)
    path = write(given.cluster.masters[0].address)
    assert path == tmp_path / ".umbilical" / "192.168.126.101.kubeconfig"
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.stat().st_mtime_ns
    assert write(given.cluster.masters[0].address).stat().st_mtime_ns == before


def test_without_an_address_it_is_the_load_balancers(tmp_path: Path) -> None:
    value = yaml.safe_load(kubeconfigs(tmp_path, inputs())(None).read_bytes())
    assert value["clusters"][0]["cluster"]["server"] == "https://192.168.126.10:6443"


def test_it_holds_the_administrators_pair_and_no_names() -> None:
    given = inputs()
    text = address_kubeconfig(given, ipaddress.ip_address("fd00::1"))
    value = yaml.safe_load(text)
    assert value["clusters"][0]["cluster"]["server"] == "https://[fd00::1]:6443"
    assert value["users"][0]["name"] == "admin"
    assert given.certificates[ADMIN].key not in text


def test_one_of_other_keys_is_replaced(tmp_path: Path) -> None:
    first, second = (kubeconfigs(tmp_path, one)(None).read_bytes() for one in (inputs(), new_inputs()))
    assert first != second


def test_the_api_is_asked_at_the_address_that_is_named_and_else_through_the_load_balancer(tmp_path: Path) -> None:
    site = make_site(tmp_path, kubeconfig=lambda address: tmp_path / str(address or "balancer"))
    assert site.api().kubeconfig.name == "balancer"
    assert site.api(ip_address("192.0.2.7")).kubeconfig.name == "192.0.2.7"


def test_without_a_kubeconfig_nothing_is_asked(tmp_path: Path) -> None:
    with pytest.raises(ClusterError):
        ClusterApi(tmp_path / "none").call(lambda client: client.get_text("/readyz"))
