"""The directory of a cluster, read and written."""

from pathlib import Path

import pytest
from tests.support import hardway, hardway_config
from tests.support.hardway_workspace import contents, make_directory, write_release

from umbilical.assets.errors import AssetError
from umbilical.assets.hardway.cluster import Role
from umbilical.assets.tree import Asset
from umbilical.hardway import workspace
from umbilical.hardway.errors import HardwayError


def write(folder: Path, *assets: Asset, removed: tuple[str, ...] = ()) -> None:
    workspace.write_artifacts(folder, assets, removed)


def test_a_directory_without_its_file_is_none_of_a_cluster(tmp_path: Path) -> None:
    with pytest.raises(HardwayError) as refused:
        workspace.read_config(tmp_path)
    assert refused.value.code == "UMB701"
    assert "stage init" in refused.value.remedy


def test_a_wrong_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text("nmae: x")
    with pytest.raises(AssetError) as refused:
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


def test_no_artifacts_are_no_error(tmp_path: Path) -> None:
    assert workspace.read_artifacts(tmp_path) == {}


def test_scratch_files_and_work_directories_are_no_artifacts(tmp_path: Path) -> None:
    write(tmp_path, Asset(".tls.x", b"", 0o600), Asset("machine-config/work/x", b"", 0o600), Asset("a", b"", 0o600))
    write(tmp_path, Asset(".artifacts.killed/tls/a.key", b"", 0o600))
    assert list(workspace.read_artifacts(tmp_path)) == ["a"]


def test_what_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path, Asset("a", b"1", 0o600))
    (tmp_path / "artifacts/b/c").mkdir(parents=True)
    with pytest.raises(HardwayError) as refused:
        write(tmp_path, Asset("a", b"2", 0o600), Asset("b", b"2", 0o600))
    assert refused.value.code == "UMB714"
    assert (tmp_path / "artifacts/a").read_bytes() == b"1"


def test_pairs_are_found_by_their_keys() -> None:
    files = ("tls/a.crt", "tls/a.key", "tls/b.pub", "tls/b.key", "tls/c.crt", "tls/d.key", "tls/bundles/e.crt")
    found = workspace.key_pairs({path: Asset(path, path.encode(), 0o600) for path in files})
    assert {name: (pair.certificate, pair.key) for name, pair in found.items()} == {
        "a": (b"tls/a.crt", b"tls/a.key"),
        "b": (b"tls/b.pub", b"tls/b.key"),
    }


def test_a_release_is_read_from_its_directory(tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "c", "openshift", release=False)
    cluster = workspace.read_config(folder).cluster
    assert workspace.read_payload(folder, cluster) is None
    write_release(folder / "release")
    payload = workspace.read_payload(folder, cluster)
    assert payload is not None
    assert payload.version == hardway.VERSION
    assert payload.image.partition("@")[2].startswith("sha256:")


def test_a_directory_of_ours_that_a_kill_left_half_filled_is_no_release_yet(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_bytes(hardway_config.content())
    (tmp_path / "release").mkdir()
    (tmp_path / "release/release.json").write_bytes(b"{}")
    assert workspace.read_payload(tmp_path, workspace.read_config(tmp_path).cluster) is None
    (tmp_path / "cluster.yaml").write_bytes(hardway_config.content(release__directory="release"))
    with pytest.raises(AssetError, match="UMB715"):
        workspace.read_payload(tmp_path, workspace.read_config(tmp_path).cluster)


def test_how_a_release_is_extracted_is_said_where_its_image_is_known(tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "c", "openshift", release=False)
    assert workspace.extraction_commands(folder, workspace.read_config(folder).cluster) == ()
    (folder / "cluster.yaml").write_bytes(hardway_config.content())
    info, extract = workspace.extraction_commands(folder, workspace.read_config(folder).cluster)
    assert info.output == f"{folder}/release/release.json"
    assert {f"{folder}/pull-secret.json", f"--to={folder}/release"} <= set(extract.arguments)


def test_upstream_needs_no_release(tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "c")
    payload = workspace.read_payload(folder, workspace.read_config(folder).cluster)
    assert payload is not None
    assert payload.images["etcd"] == "localhost/etcd:lab"


def test_a_directory_that_is_too_large_for_a_release_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_nothing_is_read_where_no_pull_secret_is_named(tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "c")
    assert workspace.read_pull_secret(folder, workspace.read_config(folder).cluster) == b""


def test_rendered_machine_configs_are_taken_up(tmp_path: Path) -> None:
    assert workspace.read_node_bases(tmp_path) == {}
    spec = "{config: {ignition: {version: 3.4.0}}}"
    for role in ("master", "worker"):
        path = f"machine-config/work/mcc-output/machine-configs/rendered-{role}-abc.yaml"
        write(
            tmp_path,
            Asset(
                path, f"kind: MachineConfig\nmetadata: {{name: rendered-{role}-abc}}\nspec: {spec}\n".encode(), 0o644
            ),
        )
    bases = workspace.read_node_bases(tmp_path)
    assert {role: base.name for role, base in bases.items()} == {
        Role.MASTER: "rendered-master-abc",
        Role.WORKER: "rendered-worker-abc",
    }
