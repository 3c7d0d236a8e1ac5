"""How commands find their cluster, and who may keep what is drawn."""

from pathlib import Path

import pytest
from tests.support.hardway_workspace import contents, make_directory

from umbilical.cli.stage_options import load_site, utc_now
from umbilical.hardway.locking import locked
from umbilical.hardway.reporting import Waiting
from umbilical.hardway.workspace import read_artifacts


class Silent:
    """Nobody is told."""

    def stage(self, number: int, title: str) -> None: ...

    def step(self, title: str, command: str) -> None: ...

    def saw(self, text: str) -> None: ...

    def waiting(self, moment: Waiting) -> None: ...

    def table(self, *_: object) -> None: ...


def test_a_site_has_what_is_rendered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_directory(tmp_path / "c")
    monkeypatch.chdir(tmp_path)
    site = load_site(Path("c"), Silent())
    assert site.folder == tmp_path / "c"
    assert site.machines.kind == "lab"
    assert "ignition/bootstrap.ign" in site.assets
    assert sorted(path for paths in site.files.values() for path in paths) == sorted(site.assets)
    assert site.hashes.keys() >= {"pki", "ignition", "infrastructure"}
    assert site.has_tunnel


def test_who_only_looks_writes_nothing(tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "c")
    before = contents(folder)
    load_site(folder, Silent())
    assert contents(folder) == before


def test_who_holds_the_lock_keeps_what_is_drawn(tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "c")
    with locked(folder, "test", utc_now().isoformat()):
        site = load_site(folder, Silent())
    assert site.reload is not None
    again = site.reload()
    assert again.hashes == site.hashes
    assert {path.partition("/")[0] for path in read_artifacts(folder)} == {"tls"}


def test_the_api_is_reached_by_address(tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "c")
    site = load_site(folder, Silent())
    assert site.api().kubeconfig == folder / ".umbilical/192.168.126.10.kubeconfig"
    assert site.api(site.cluster.masters[0].address).kubeconfig.name == "192.168.126.101.kubeconfig"


def test_a_site_of_openshift_knows_which_operators_must_settle(tmp_path: Path) -> None:
    site = load_site(make_directory(tmp_path / "c", "openshift"), Silent())
    assert {"etcd", "network", "machine-config"} <= set(site.operators)
    assert load_site(make_directory(tmp_path / "k"), Silent()).operators == ()
