import json
import re
import shlex
from pathlib import Path

import pytest
from tests.support.bootkube_script import bootkube_script
from tests.support.bootstrap_corpus import bootstrap_config
from tests.support.install_directories import Directory

from umbilical.assets.bootkube.edits import REASONS
from umbilical.assets.bootkube.plan import PURPOSES
from umbilical.cli.errors import CONFIGURATION, USAGE
from umbilical.cli.main import run


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "bootstrap.ign"
    path.write_bytes(bootstrap_config("4.18"))
    return path


def test_a_plan_shows_every_change_with_its_reason_and_writes_nothing(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = config.read_bytes()
    assert run(["bootstrap", "plan", str(config)]) == 0
    shown = capsys.readouterr().out
    for path, why in PURPOSES.items():
        assert f"+ {path} " in shown
        assert why in shown
    assert "~ /usr/local/bin/bootkube.sh " in shown
    assert all(reason in shown for reason in REASONS.values())
    assert "Plan: 9 to add, 1 to change, 0 to remove; " in shown
    assert re.search(r"; \d+ KiB -> \d+ KiB; bootkube.sh as in 4", shown)
    assert config.read_bytes() == before
    assert list(config.parent.iterdir()) == [config]


def test_a_plan_tells_the_port_the_order_and_the_day(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bootstrap", "plan", str(config), "--agent-port", "9123"]) == 0
    shown = capsys.readouterr().out
    assert "Needs TCP 9123 from every node to the bootstrap node on aws" in shown
    assert "umbilical firewall render --platform aws --machine-network 10.0.0.0/16 --port 9123\n" in shown
    steps = ["create manifests", "create ignition-configs", "patch", "create cluster"]
    order = shown[shown.index("Order:") :]
    assert sorted(steps, key=order.index) == steps
    assert "24 hours" in order


def test_a_plan_names_the_gates_where_the_built_in_tunnel_is_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bootstrap.ign"
    path.write_bytes(bootstrap_config("5.0", native="off"))
    assert run(["bootstrap", "plan", str(path)]) == 0
    assert "CRDCompatibilityRequirementOperator or ClusterAPIMachineManagement" in capsys.readouterr().out


def test_a_plan_as_json_is_one_object_on_standard_output(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bootstrap", "plan", str(config), "-o", "json", "--show-anchors"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["kind"] == "BootstrapPlan"
    assert "  A1  line 11: " in captured.err


def test_anchors_are_shown_even_where_the_patch_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = bootkube_script("4.18").replace("touch /opt/openshift/.bootkube", "  touch /opt/openshift/.bootkube")
    path = tmp_path / "bootstrap.ign"
    path.write_bytes(bootstrap_config(script=lines))
    assert run(["bootstrap", "plan", str(path), "--show-anchors"]) == CONFIGURATION
    captured = capsys.readouterr()
    assert "sha256 " in captured.out
    assert "  A6  not found, alike but indented: line 391: touch /opt/openshift/.bootkube.done" in captured.out
    assert captured.err.startswith("UMB121 bootkube.sh is not recognised: anchor A6 is there 0 times")


def test_an_install_directory_gives_file_platform_and_warnings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Directory(tmp_path).metadata(aws=None, vsphere={})
    (tmp_path / "bootstrap.ign").write_bytes(bootstrap_config("4.18"))
    (tmp_path / "install-config.yaml").write_text("platform: {vsphere: {}}\n")
    assert run(["bootstrap", "plan", "--dir", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert "on vsphere" in captured.out
    assert f"umbilical firewall render --dir {tmp_path}\n" in captured.out
    assert "warning: install-config.yaml is newer than bootstrap.ign" in captured.err


def test_the_firewall_command_that_is_offered_works_where_the_manifests_are_read_no_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Directory(tmp_path).metadata(aws={})
    (tmp_path / "bootstrap.ign").write_bytes(bootstrap_config("4.18"))
    assert run(["bootstrap", "plan", "--dir", str(tmp_path)]) == 0
    offered = re.search(r"next: umbilical (firewall render .*)", capsys.readouterr().out)
    assert offered is not None
    assert run(shlex.split(offered[1])) == 0
    assert "8091" in capsys.readouterr().out


@pytest.mark.parametrize("options", [["--ca-cert", "a", "--ca-key", "b"], ["--from-install-state"]])
def test_a_plan_refuses_a_foreign_authority_as_the_patch_does(
    config: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bootstrap", "plan", str(config), *options]) == CONFIGURATION
    assert capsys.readouterr().err.startswith(f"UMB130 a patch cannot sign with an existing CA ({options[0]}")


def test_a_file_and_a_directory_together_are_refused(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bootstrap", "plan", str(config), "--dir", str(config.parent)]) == USAGE
    assert "name one: a FILE, or --dir DIR" in capsys.readouterr().err
