"""`umbilical firewall render`, alone and on an install directory."""

import json
import stat
from pathlib import Path
from typing import Any

import hcl2
import pytest
import yaml
from tests.support.capi_manifests import INFRA_ID, MANIFESTS

from umbilical.cli import main


def _run(capfd: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    status = main.run(["firewall", "render", *(str(argument) for argument in arguments)])
    told = capfd.readouterr()
    return status, told.out, told.err


def _install_dir(folder: Path, platform: str) -> Path:
    """A directory as `create manifests` leaves it: the id is in the state file, metadata.json comes later."""
    config = {"platform": {platform: {}}, "networking": {"machineNetwork": [{"cidr": "10.0.0.0/16"}]}}
    state = {
        "*installconfig.ClusterID": {"InfraID": INFRA_ID, "UUID": "0"},
        "*installconfig.InstallConfig": {"config": config},
    }
    (folder / ".openshift_install_state.json").write_text(json.dumps(state))
    if platform in MANIFESTS:
        file, manifest = MANIFESTS[platform]
        (folder / "cluster-api").mkdir()
        (folder / "cluster-api" / file).write_text(manifest())
        (folder / "cluster-api" / file).chmod(0o640)
    return folder


def _manifest(folder: Path, platform: str) -> Path:
    return folder / "cluster-api" / MANIFESTS[platform][0]


def test_standard_output_is_the_script_alone(capfd: pytest.CaptureFixture[str]) -> None:
    status, out, err = _run(capfd, "--platform", "gcp", "--infra-id", "ci")
    assert status == 0
    assert out.startswith("#!/usr/bin/env bash\n")
    assert "note:" not in out
    assert "note: Workers are not let in" in err


def test_without_a_wish_the_first_form_that_fits_is_written(capfd: pytest.CaptureFixture[str]) -> None:
    _, out, _ = _run(capfd, "--platform", "baremetal", "--machine-network", "10.0.0.0/16")
    assert out.startswith("#!/usr/sbin/nft -f\n")


def test_sources_narrow_what_machine_networks_allow(capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ("--platform", "none", "--machine-network", "10.0.0.0/16", "--source", "10.0.0.4", "-o", "json")
    _, out, _ = _run(capfd, *arguments)
    sources: list[dict[str, Any]] = json.loads(out)["rules"][0]["sources"]
    assert [source["value"] for source in sources] == ["10.0.0.4/32"]


def test_a_network_that_is_named_twice_is_one_rule(capfd: pytest.CaptureFixture[str]) -> None:
    twice = ("--machine-network", "10.0.0.0/16") * 2
    _, out, _ = _run(capfd, "--platform", "openstack-upi", "--infra-id", "ci", *twice, "-o", "json")
    assert len(json.loads(out)["rules"]) == 1


def test_another_port_reaches_every_line(capfd: pytest.CaptureFixture[str]) -> None:
    _, out, _ = _run(capfd, "--platform", "azure", "--infra-id", "ci", "--port", "9191", "-o", "terraform")
    [resource] = hcl2.loads(out)["resource"]
    assert "9191" in json.dumps(resource)
    assert "8091" not in out


def test_a_file_is_written_once_and_never_over_another(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ("--platform", "gcp", "--infra-id", "ci", "-o", "terraform", "--out", tmp_path / "main.tf")
    assert _run(capfd, *arguments)[:2] == (0, "")
    assert hcl2.loads((tmp_path / "main.tf").read_text())["resource"]
    status, _, err = _run(capfd, *arguments)
    assert (status, err[:6]) == (3, "UMB801")


def test_a_native_release_is_told_that_it_does_so_itself(capfd: pytest.CaptureFixture[str]) -> None:
    _, _, err = _run(capfd, "--platform", "gcp", "--infra-id", "ci", "--release", "5.0")
    assert "note: in 5.0 made by the installer's code" in err


@pytest.mark.parametrize("platform", MANIFESTS)
def test_a_manifest_is_shown_as_a_difference_and_left_alone(
    platform: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = _manifest(_install_dir(tmp_path, platform), platform)
    before = path.read_text()
    status, out, _ = _run(capfd, "--dir", tmp_path)
    assert status == 0
    assert out.startswith(f"--- {path}\n+++ ")
    assert not [line for line in out.splitlines()[2:] if line.startswith("-")]
    assert path.read_text() == before


@pytest.mark.parametrize("platform", MANIFESTS)
def test_apply_writes_it_once_and_close_takes_it_back(
    platform: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = _manifest(_install_dir(tmp_path, platform), platform)
    before = path.read_text()
    assert _run(capfd, "--dir", tmp_path, "--apply")[:2] == (0, "")
    after = path.read_text()
    assert "8091" in after
    assert yaml.safe_load(after)["kind"] == yaml.safe_load(before)["kind"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    status, out, err = _run(capfd, "--dir", tmp_path, "--apply")
    assert (status, out, path.read_text()) == (0, "", after)
    assert "nothing to do" in err
    _run(capfd, "--dir", tmp_path, "--apply", "--close")
    assert path.read_text() == before


def test_the_directory_knows_the_networks(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _, out, _ = _run(capfd, "--dir", _install_dir(tmp_path, "azure"), "-o", "json")
    value = json.loads(out)
    assert (value["platform"], value["infraId"]) == ("azure", INFRA_ID)
    assert value["rules"][0]["name"] == "konnectivity_in_ipv4_00"


@pytest.mark.parametrize("mark", ["bootstrap.ign", "master.ign", "worker.ign"])
def test_after_ignition_configs_nothing_is_changed_any_more(
    mark: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = _manifest(_install_dir(tmp_path, "aws"), "aws")
    before = path.read_text()
    (tmp_path / mark).write_text("{}")
    status, out, err = _run(capfd, "--dir", tmp_path, "--apply")
    assert (status, out, path.read_text()) == (3, "", before)
    assert err.startswith("UMB163 too late")


def test_without_the_manifest_the_way_to_get_it_is_told(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _manifest(_install_dir(tmp_path, "aws"), "aws").unlink()
    status, _, err = _run(capfd, "--dir", tmp_path)
    assert (status, err[:6]) == (3, "UMB164")
    assert "openshift-install create manifests" in err


def test_a_platform_without_manifest_rules_gets_its_cli(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _, out, _ = _run(capfd, "--dir", _install_dir(tmp_path, "gcp"))
    assert f"gcloud compute firewall-rules create {INFRA_ID}-bootstrap-in-konnectivity" in out


@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        ([], 2, "UMB001"),
        (["--platform", "aws", "--infra-id", "ci", "--apply"], 2, "UMB001"),
        (["--platform", "aws", "--infra-id", "ci", "-o", "yaml"], 2, "UMB001"),
        (["--platform", "aws"], 3, "UMB160"),
        (["--platform", "aws", "--infra-id", "ci", "--source", "10.0.0.0/16"], 3, "UMB160"),
        (["--platform", "aws", "--infra-id", "ci", "--port", "6443"], 3, "UMB160"),
        (["--platform", "aws", "--infra-id", "ci", "-o", "nftables"], 3, "UMB161"),
        (["--platform", "aws", "--infra-id", "ci", "-o", "capi", "--release", "4.15"], 3, "UMB161"),
        (["--platform", "baremetal"], 3, "UMB162"),
        (["--platform", "openstack", "--infra-id", "ci", "--machine-network", "10.0.0.0/16"], 3, "UMB160"),
        (["--dir", "/nonexistent/install"], 3, "UMB170"),
    ],
)
def test_a_wish_that_cannot_be_met_is_a_fault_in_three_lines(
    arguments: list[str], status: int, code: str, capfd: pytest.CaptureFixture[str]
) -> None:
    found, out, err = _run(capfd, *arguments)
    assert (found, out) == (status, "")
    assert err.startswith(code)
    assert len(err.splitlines()) == 3
