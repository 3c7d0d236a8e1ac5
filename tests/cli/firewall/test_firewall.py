"""`umbilical firewall render`, `list` and `check` as a user runs them."""

import json
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import click
import hcl2
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.support import tls_listener
from tests.support.capi_manifests import INFRA_ID, MANIFESTS
from tests.support.commands import Run
from tests.support.fixture_types import Patch
from tests.support.netns import Namespace, Network, isolated_resolver
from tests.support.tls_contexts import server_context
from tests.support.tls_listener import listener
from tests.support.tunnel_pki import TunnelPki, make_tunnel_pki

from umbilical.cli.firewall.check import target
from umbilical.firewall.platforms.catalogue import PLATFORMS
from umbilical.host.processes import start


@pytest.fixture
def render(umbilical: Run) -> Run:
    return partial(umbilical, "firewall", "render")


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


def test_standard_output_is_the_script_alone(render: Run) -> None:
    out, err = render("--platform", "gcp", "--infra-id", "ci")
    assert out.startswith("#!/usr/bin/env bash\n")
    assert "note:" not in out
    assert "note: That rule does not allow workers" in err


def test_without_a_wish_the_first_form_that_fits_is_written(render: Run) -> None:
    out = render("--platform", "baremetal", "--machine-network", "10.0.0.0/16").out
    assert out.startswith("#!/usr/sbin/nft -f\n")


def test_sources_narrow_what_machine_networks_allow_and_each_is_one_rule(render: Run) -> None:
    arguments = ("--platform", "none", "--machine-network", "10.0.0.0/16", "--source", "10.0.0.4", "-o", "json")
    sources = render(*arguments).json()["rules"][0]["sources"]
    assert [source["value"] for source in sources] == ["10.0.0.4/32"]
    twice = ("--machine-network", "10.0.0.0/16") * 2
    assert len(render("--platform", "openstack-upi", "--infra-id", "ci", *twice, "-o", "json").json()["rules"]) == 1


def test_another_port_reaches_every_line(render: Run) -> None:
    out = render("--platform", "azure", "--infra-id", "ci", "--port", "9191", "-o", "terraform").out
    [resource] = hcl2.loads(out)["resource"]
    assert "9191" in json.dumps(resource)
    assert "8091" not in out


def test_a_file_is_written_once_and_never_over_another(render: Run, tmp_path: Path) -> None:
    arguments = ("--platform", "gcp", "--infra-id", "ci", "-o", "terraform", "--out", tmp_path / "main.tf")
    assert render(*arguments).out == ""
    assert hcl2.loads((tmp_path / "main.tf").read_text())["resource"]
    assert render(*arguments, status=3).err.startswith("UMB801")


def test_a_native_release_is_told_that_it_does_so_itself(render: Run) -> None:
    err = render("--platform", "gcp", "--infra-id", "ci", "--release", "5.0").err
    assert "note: in 5.0 the rule is created by the installer's code" in err


@pytest.mark.parametrize("platform", MANIFESTS)
def test_a_manifest_is_shown_as_a_difference_until_apply_writes_it_once_and_close_takes_it_back(
    platform: str, render: Run, tmp_path: Path
) -> None:
    path = _manifest(_install_dir(tmp_path, platform), platform)
    before = path.read_text()
    lines = render("--dir", tmp_path).lines
    assert (lines[0], lines[1][:4]) == (f"--- {path}", "+++ ")
    assert not [line for line in lines[2:] if line.startswith("-")]
    assert path.read_text() == before
    assert render("--dir", tmp_path, "--apply").out == ""
    after = path.read_text()
    assert "8091" in after
    assert yaml.safe_load(after)["kind"] == yaml.safe_load(before)["kind"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    out, err = render("--dir", tmp_path, "--apply")
    assert (out, path.read_text()) == ("", after)
    assert "nothing to do" in err
    render("--dir", tmp_path, "--apply", "--close")
    assert path.read_text() == before


def test_the_directory_knows_the_networks(render: Run, tmp_path: Path) -> None:
    value = render("--dir", _install_dir(tmp_path, "azure"), "-o", "json").json()
    assert (value["platform"], value["infraId"]) == ("azure", INFRA_ID)
    assert value["rules"][0]["name"] == "konnectivity_in_ipv4_00"


def test_after_ignition_configs_nothing_is_changed_any_more(render: Run, tmp_path: Path) -> None:
    path = _manifest(_install_dir(tmp_path, "aws"), "aws")
    before = path.read_text()
    for mark in ("bootstrap.ign", "master.ign", "worker.ign"):
        (tmp_path / mark).write_text("{}")
        out, err = render("--dir", tmp_path, "--apply", status=3)
        assert (out, path.read_text()) == ("", before)
        assert err.startswith(f"UMB163 {path} was not changed: it is too late")
        (tmp_path / mark).unlink()


def test_without_the_manifest_the_way_to_get_it_is_told(render: Run, tmp_path: Path) -> None:
    _manifest(_install_dir(tmp_path, "aws"), "aws").unlink()
    err = render("--dir", tmp_path, status=3).err
    assert err.startswith("UMB164")
    assert "openshift-install create manifests" in err


def test_a_platform_without_manifest_rules_gets_its_cli(render: Run, tmp_path: Path) -> None:
    out = render("--dir", _install_dir(tmp_path, "gcp")).out
    assert f"gcloud compute firewall-rules create {INFRA_ID}-bootstrap-in-konnectivity" in out


def test_apply_names_why_a_platform_has_no_manifest_and_a_command_that_works(umbilical: Run, tmp_path: Path) -> None:
    for platform, why in (
        ("none", "the installer creates no firewall rules on this platform"),
        ("gcp", "the installer creates firewall rules in its own code"),
    ):
        folder = tmp_path / platform
        folder.mkdir()
        err = umbilical("firewall", "render", "--dir", _install_dir(folder, platform), "--apply", status=3).err
        assert err.startswith(f"UMB161 {platform} has no form capi\n  why: {why}")
        _, _, command = err.strip().rpartition("next: umbilical ")
        assert "8091" in umbilical(*shlex.split(command)).out


def test_letter_case_of_a_platform_does_not_matter(render: Run) -> None:
    arguments = ("--infra-id", "ci", "-o", "json")
    assert render("--platform", "AWS", *arguments) == render("--platform", "aws", *arguments)


def test_the_directory_gives_the_release_that_names_and_lifetimes_depend_on(render: Run, tmp_path: Path) -> None:
    path = _install_dir(tmp_path, "openstack")
    (path / "openshift").mkdir()
    for version, group in (("v4.20.3", f"{INFRA_ID}-master"), ("4.21.0-rc.1", f"{INFRA_ID}-bootstrap")):
        content = {"kind": "ConfigMap", "data": {"invoker": "user", "version": version}}
        (path / "openshift" / "openshift-install-manifests.yaml").write_text(yaml.safe_dump(content))
        assert render("--dir", path, "-o", "json").json()["rules"][0]["target"]["value"] == group
    (path / "openshift" / "openshift-install-manifests.yaml").write_text("data: {version: unreleased-master-1}")
    assert "the release is missing" in render("--dir", path, "-o", "json", status=3).err


def test_a_wish_that_cannot_be_met_is_a_fault_in_three_lines(render: Run) -> None:
    for arguments, status, code in (
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
    ):
        out, err = render(*arguments, status=status)
        assert out == ""
        assert err.startswith(code)
        assert len(err.splitlines()) == 3


@pytest.fixture
def listed(umbilical: Run) -> Run:
    return partial(umbilical, "firewall", "list")


def test_the_table_has_a_line_per_platform_and_names_the_leaks(listed: Run) -> None:
    out, err = listed()
    assert err == ""
    lines = {line.split()[0]: line for line in out.splitlines() if line}
    assert set(PLATFORMS) <= set(lines)
    assert [name for name in PLATFORMS if "nobody: it stays" in lines[name]] == ["azure", "powervs"]
    assert max(len(line) for line in out.splitlines()) <= 110


def test_one_platform_is_told_in_full(listed: Run, monkeypatch: Patch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    out = listed("--platform", "aws").out
    assert "removed by  4.16 to 4.22: the installer" in out
    assert "'Bootstrap SSH Access'" in out
    assert "forms       cli, terraform, capi, json" in out


def test_programs_get_json(listed: Run) -> None:
    value = listed("-o", "json").json()
    assert value["kind"] == "FirewallPlatforms"
    assert [platform["platform"] for platform in value["platforms"]] == [*PLATFORMS]


def test_leftovers_of_every_platform_are_lines_to_paste_or_json(listed: Run) -> None:
    for name in PLATFORMS:
        out = listed("--leftovers", "--platform", name, "--infra-id", "ci-x1").out
        assert out.index("# list the open rules") < out.index("# remove them")
        # Pasted into a shell, it would end that shell.
        assert "exit" not in out
        value = listed("--leftovers", "--platform", name, "--infra-id", "ci-x1", "-o", "json").json()
        assert value["show"]
        assert value["remove"]


def test_leftovers_are_looked_for_by_the_names_of_the_installers(listed: Run) -> None:
    names = {
        "gcp": "ci-bootstrap-in-konnectivity",
        "azure": "konnectivity_in",
        "powervs": "ci-sg-control-plane",
        "ibmcloud": "ci-security-group-bootstrap",
        "openstack": "openshiftClusterID=ci,openshiftRole=bootstrap",
        "aws": "ci-controlplane",
    }
    for platform, name in names.items():
        out = listed("--leftovers", "--platform", platform, "--infra-id", "ci").out
        assert name in out


def test_what_cannot_be_answered_is_a_fault_in_three_lines(listed: Run) -> None:
    for arguments, status, code in (
        (["--leftovers"], 2, "UMB001"),
        (["--platform", "nimbus"], 3, "UMB160"),
        (["--leftovers", "--platform", "gcp"], 3, "UMB160"),
        (["--leftovers", "--platform", "gcp", "--infra-id", "$(id)"], 3, "UMB160"),
        (["--leftovers", "--platform", "gcp", "--infra-id", "ci", "--release", "x"], 3, "UMB160"),
    ):
        out, err = listed(*arguments, status=status)
        assert out == ""
        assert err.startswith(code)
        assert len(err.splitlines()) == 3


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> TunnelPki:
    return make_tunnel_pki(tmp_path_factory.mktemp("pki"), ("127.0.0.1", "::1"))


@pytest.fixture
def check(umbilical: Run) -> Run:
    return partial(umbilical, "firewall", "check")


def test_a_place_is_read_in_all_its_spellings() -> None:
    for text, host, port in (
        *(("10.0.0.9", "10.0.0.9", 8091), ("10.0.0.9:9191", "10.0.0.9", 9191)),
        *(("api-int.example:8091", "api-int.example", 8091), ("fd00::9", "fd00::9", 8091)),
        *(("[fd00::9]", "fd00::9", 8091), ("[fd00::9]:9191", "fd00::9", 9191), ("::1", "::1", 8091)),
    ):
        place = target(text)
        assert (place.host, place.port) == (host, port)


def test_what_is_no_place_is_refused() -> None:
    for text in ("", ":8091", "[]:1", "a b", "host:", "host:x", "host:0", "host:65536", "[::1", "a/b"):
        with pytest.raises(click.BadParameter):
            target(text)


@given(st.text(max_size=30))
def test_any_text_is_a_place_or_refused(text: str) -> None:
    try:
        place = target(text)
    except click.BadParameter:
        return
    assert place.host
    assert 1 <= place.port <= 65535


def test_a_server_as_it_should_be_gives_zero(check: Run, pki: TunnelPki) -> None:
    files = ("--ca", pki.authority.certificate_file, "--cert", pki.agent.certificate, "--key", pki.agent.key)
    with listener(tls_listener.speaks_first(server_context(pki))) as port:
        told = check(f"127.0.0.1:{port}", *files, "-o", "json")
    value = told.json()
    assert (told.err, value["kind"], value["tcp"]) == ("", "FirewallCheck", "open")
    assert value["summary"]["passed"] == value["summary"]["checks"] == 7
    by_id = {finding["id"]: finding for finding in value["findings"]}
    assert by_id["FW3"]["evidence"] == "127.0.0.1, ::1"


def test_a_server_that_takes_strangers_gives_one_and_names_the_hole(check: Run, pki: TunnelPki) -> None:
    with listener(tls_listener.speaks_first(server_context(pki, asks_certificate=False)), "::1") as port:
        assert "CVE-2026-16242" in check(f"[::1]:{port}", status=1).out


def test_bad_words_and_files_are_told_before_anything_is_dialled(check: Run) -> None:
    for arguments, status, code in (
        (["10.0.0.9:x"], 2, "UMB001"),
        (["10.0.0.9", "--timeout", "soon"], 2, "UMB001"),
        (["10.0.0.9", "--ca", "/nonexistent/ca.crt"], 3, "UMB002"),
        (["10.0.0.9", "--cert", "/nonexistent/tls.crt"], 3, "UMB003"),
    ):
        out, err = check(*arguments, status=status)
        assert (out, err[:6]) == ("", code)


def test_a_key_of_another_certificate_is_a_fault(check: Run, pki: TunnelPki) -> None:
    err = check("127.0.0.1:1", "--cert", pki.agent.certificate, "--key", pki.server.key, status=3).err
    assert err.startswith("UMB166")
    assert len(err.splitlines()) == 3


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    """A machine with a default route into nothing."""
    with Network("umbfwc") as network:
        made = network.create("here")
        network.swallow(made)
        yield made


def _state(command: list[str]) -> tuple[int, str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, json.loads(done.stdout)["tcp"]


def _check(place: str) -> list[str]:
    return [sys.executable, "-m", "umbilical", "firewall", "check", place, "--timeout", "500ms", "-o", "json"]


@pytest.mark.root
@pytest.mark.real("ip", "nsenter")
def test_swallowed_refused_and_unroutable_are_told_apart(namespace: Namespace) -> None:
    assert _state(namespace.command(*_check("198.18.0.254"))) == (1, "timed out")
    assert _state(namespace.command(*_check("203.0.113.9:443"))) == (1, "timed out")
    assert _state(namespace.command(*_check("127.0.0.1"))) == (1, "refused")
    # The namespace has no way to any IPv6 network.
    assert _state(namespace.command(*_check("[2001:db8::9]:8091"))) == (1, "no route")


@pytest.mark.root
@pytest.mark.real("ip", "nsenter", "unshare")
def test_a_name_that_no_resolver_knows_is_told_as_such(namespace: Namespace, tmp_path: Path, repository: Path) -> None:
    resolv_conf = tmp_path / "resolv.conf"
    resolv_conf.write_text("nameserver 127.0.0.1\n")
    server = namespace.command(sys.executable, "-m", "tests.support.nxdomain")
    with start(server, tmp_path / "log", folder=repository) as child:
        child.wait_ready(lambda: "ready" in child.log_text(), 30)
        command = namespace.command(*isolated_resolver(resolv_conf, _check("bootstrap.example")))
        assert _state(command) == (1, "name not found")
