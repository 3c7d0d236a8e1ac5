"""`umbilical firewall list`."""

import json

import pytest

from umbilical.assets.platforms.catalogue import PLATFORMS
from umbilical.cli import main


def _run(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main.run(["firewall", "list", *arguments])
    told = capfd.readouterr()
    return status, told.out, told.err


def test_the_table_has_a_line_per_platform_and_names_the_leaks(capfd: pytest.CaptureFixture[str]) -> None:
    status, out, err = _run(capfd)
    assert (status, err) == (0, "")
    lines = {line.split()[0]: line for line in out.splitlines() if line}
    assert set(PLATFORMS) <= set(lines)
    assert [name for name in PLATFORMS if "nobody: it stays" in lines[name]] == ["azure", "powervs"]
    assert max(len(line) for line in out.splitlines()) <= 110


def test_one_platform_is_told_in_full(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    _, out, _ = _run(capfd, "--platform", "aws")
    assert "removed by  4.16 to 4.22: the installer" in out
    assert "'Bootstrap SSH Access'" in out
    assert "forms       cli, terraform, capi, json" in out


def test_programs_get_json(capfd: pytest.CaptureFixture[str]) -> None:
    _, out, _ = _run(capfd, "-o", "json")
    value = json.loads(out)
    assert value["kind"] == "FirewallPlatforms"
    assert [platform["platform"] for platform in value["platforms"]] == [*PLATFORMS]


@pytest.mark.parametrize("name", PLATFORMS)
def test_leftovers_of_every_platform_are_lines_to_paste(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    status, out, _ = _run(capfd, "--leftovers", "--platform", name, "--infra-id", "ci-x1")
    assert status == 0
    assert out.index("# list what is open") < out.index("# remove it")
    # Pasted into a shell, it would end that shell.
    assert "exit" not in out


@pytest.mark.parametrize("name", PLATFORMS)
def test_leftovers_come_as_json_too(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    _, out, _ = _run(capfd, "--leftovers", "--platform", name, "--infra-id", "ci-x1", "-o", "json")
    value = json.loads(out)
    assert value["show"]
    assert value["remove"]


def test_leftovers_are_looked_for_by_the_names_of_the_installers(capfd: pytest.CaptureFixture[str]) -> None:
    names = {
        "gcp": "ci-bootstrap-in-konnectivity",
        "azure": "konnectivity_in",
        "powervs": "ci-sg-control-plane",
        "ibmcloud": "ci-security-group-bootstrap",
        "openstack": "openshiftClusterID=ci,openshiftRole=bootstrap",
        "aws": "ci-controlplane",
    }
    for platform, name in names.items():
        _, out, _ = _run(capfd, "--leftovers", "--platform", platform, "--infra-id", "ci")
        assert name in out


@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        (["--leftovers"], 2, "UMB001"),
        (["--platform", "nimbus"], 3, "UMB160"),
        (["--leftovers", "--platform", "gcp"], 3, "UMB160"),
        (["--leftovers", "--platform", "gcp", "--infra-id", "$(id)"], 3, "UMB160"),
        (["--leftovers", "--platform", "gcp", "--infra-id", "ci", "--release", "x"], 3, "UMB160"),
    ],
)
def test_what_cannot_be_answered_is_a_fault_in_three_lines(
    arguments: list[str], status: int, code: str, capfd: pytest.CaptureFixture[str]
) -> None:
    found, out, err = _run(capfd, *arguments)
    assert (found, out) == (status, "")
    assert err.startswith(code)
    assert len(err.splitlines()) == 3
