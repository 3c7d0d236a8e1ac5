"""`umbilical bootstrap patch`, `plan`, `undo` and `diff` as a user runs them."""

import gzip
import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.support.bootkube_script import bootkube_script
from tests.support.bootstrap_corpus import INFRA_ID, bootstrap_config
from tests.support.commands import Run, Told, stand_in
from tests.support.fixture_types import Patch
from tests.support.install_directories import Directory

from umbilical.bootstrap.names import BOOTKUBE
from umbilical.bootstrap.patch.config_facts import TunnelState, tunnel_state_of
from umbilical.bootstrap.patch.edits import REASONS
from umbilical.bootstrap.patch.patch import patch, undo
from umbilical.bootstrap.patch.plan import PURPOSES
from umbilical.bootstrap.spec import Shape, for_shape
from umbilical.codes import CONFIGURATION, USAGE
from umbilical.firewall.platforms.catalogue import PLATFORMS
from umbilical.ignition.data_url import format_data_url
from umbilical.ignition.document import IgnitionDocument

SPEC = for_shape(Shape.OPENSHIFT)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "bootstrap.ign"
    path.write_bytes(bootstrap_config("4.18"))
    path.chmod(0o640)
    return path


def test_a_patch_goes_to_a_new_file_with_the_mode_of_the_old(config: Path, umbilical: Run) -> None:
    before = config.read_bytes()
    out = config.parent / "patched.ign"
    captured = umbilical("bootstrap", "patch", config, "--out", out)
    assert out.read_bytes() == patch(IgnitionDocument(before), SPEC).document.content
    assert out.stat().st_mode & 0o777 == 0o640
    assert config.read_bytes() == before
    assert captured.out == ""
    assert "bootkube.sh of 4.18 recognised" in captured.err
    assert "9 files added, 1 changed" in captured.err
    assert re.search(r"verified  \d+ KiB -> \d+ KiB", captured.err)
    assert f"wrote {out}" in captured.err


def test_a_patch_in_place_replaces_the_file_and_keeps_its_mode(config: Path, umbilical: Run) -> None:
    before = config.read_bytes()
    umbilical("bootstrap", "patch", config, "--in-place")
    assert undo(IgnitionDocument(config.read_bytes())).content == before
    assert config.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in config.parent.iterdir()] == ["bootstrap.ign"]


def test_a_second_patch_says_that_nothing_changes_and_leaves_the_file_alone(config: Path, umbilical: Run) -> None:
    umbilical("bootstrap", "patch", config, "--in-place")
    inode = config.stat().st_ino
    told = umbilical("bootstrap", "patch", config, "--in-place")
    assert config.stat().st_ino == inode
    assert f"{config} is already up to date" in told.err
    copy = config.with_name("copy.ign")
    assert f"wrote {copy}" in umbilical("bootstrap", "patch", config, "--out", copy).err


def test_an_install_directory_is_patched_where_the_installer_reads_it(tmp_path: Path, umbilical: Run) -> None:
    Directory(tmp_path).metadata()
    path = tmp_path / "bootstrap.ign"
    path.write_bytes(bootstrap_config("4.18"))
    umbilical("bootstrap", "patch", "--dir", tmp_path)
    assert tunnel_state_of(IgnitionDocument(path.read_bytes()).config) is TunnelState.PATCHED


def test_a_link_stays_a_link_and_what_it_points_to_is_patched(config: Path, umbilical: Run) -> None:
    link = config.parent / "link.ign"
    link.symlink_to(config)
    umbilical("bootstrap", "patch", link, "--in-place")
    assert link.is_symlink()
    assert tunnel_state_of(IgnitionDocument(config.read_bytes()).config) is TunnelState.PATCHED


@pytest.mark.parametrize(
    ("shape", "mode", "address"),
    [("openshift", "http-connect", "auto"), ("openshift", "grpc", "10.0.0.9"), ("seed", "grpc", "auto")],
)
def test_shapes_modes_and_addresses_pass_their_own_verification(
    config: Path, shape: str, mode: str, address: str, umbilical: Run
) -> None:
    options = ["--shape", shape, "--mode", mode, "--node-ip", address]
    umbilical("bootstrap", "patch", config, "--in-place", *options)


def test_without_a_target_nothing_happens(config: Path, umbilical: Run) -> None:
    before = config.read_bytes()
    assert "--out NEWFILE or --in-place" in umbilical("bootstrap", "patch", config, status=USAGE).err
    assert config.read_bytes() == before


def test_an_existing_file_is_not_overwritten(config: Path, umbilical: Run) -> None:
    out = config.parent / "other"
    out.write_text("precious")
    err = umbilical("bootstrap", "patch", config, "--out", out, status=CONFIGURATION).err
    assert err.startswith("UMB801 ")
    assert err.endswith(f"next: mv {out} {out}.old\n")
    assert out.read_text() == "precious"


def test_what_cannot_be_patched_is_refused_in_three_lines_and_not_touched(config: Path, umbilical: Run) -> None:
    for content, code in (
        (bootstrap_config(pointer=True), "UMB122"),
        (bootstrap_config(in_place=True), "UMB123"),
        (bootstrap_config("5.0", native="on"), "UMB124"),
        (bootstrap_config(script=bootkube_script("4.18").replace("kube-apiserver-bootstrap.done ]", "x ]")), "UMB121"),
        (bootstrap_config(version="3.9.0"), "UMB141"),
        (b"not json", "UMB140"),
        (b"", "UMB140"),
    ):
        config.write_bytes(content)
        error = umbilical("bootstrap", "patch", config, "--in-place", status=CONFIGURATION).err
        assert error.startswith(f"{code} ")
        assert [line[:7] for line in error.splitlines()[1:]] == ["  why: ", "  next:"]
        assert config.read_bytes() == content


def test_a_foreign_authority_is_refused_with_the_reason(config: Path, umbilical: Run) -> None:
    before = config.read_bytes()
    error = umbilical("bootstrap", "patch", config, "--in-place", "--from-install-state", status=CONFIGURATION).err
    assert error.startswith("UMB130 ")
    assert "the root CA key is not on the node" in error
    assert "certificate of one day" in error
    assert config.read_bytes() == before


def test_what_failed_before_the_patch_is_warned_of_and_not_blamed_on_it(config: Path, umbilical: Run) -> None:
    document = IgnitionDocument(config.read_bytes()).without_files(["/usr/local/bin/bootstrap-service-record.sh"])
    config.write_bytes(document.content)
    assert "(also before the patch)" in umbilical("bootstrap", "patch", config, "--in-place").err


def test_a_script_that_bash_refuses_once_patched_is_not_written(
    config: Path, tmp_path: Path, monkeypatch: Patch, umbilical: Run
) -> None:
    """A bash that takes the installer's script and not ours: what a fault of ours would look like."""
    picky = "if grep -q umbilical_setup; then echo 'line 1: no' >&2; exit 2; fi"
    stand_in(tmp_path, "bash", picky, monkeypatch)
    before = config.read_bytes()
    error = umbilical("bootstrap", "patch", config, "--in-place", status=CONFIGURATION).err
    assert error.startswith("UMB132 ")
    assert "line 1: no" in error
    assert config.read_bytes() == before


def test_without_bash_the_patch_is_made_and_the_missing_check_told(
    config: Path, tmp_path: Path, monkeypatch: Patch, umbilical: Run
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert shutil.which("bash") is None
    assert "bash is not installed here" in umbilical("bootstrap", "patch", config, "--in-place").err


def test_a_plan_shows_every_change_with_its_reason_and_writes_nothing(config: Path, umbilical: Run) -> None:
    before = config.read_bytes()
    shown = umbilical("bootstrap", "plan", config).out
    for path, why in PURPOSES.items():
        assert f"+ {path} " in shown
        assert why in shown
    assert "~ /usr/local/bin/bootkube.sh " in shown
    assert all(reason in shown for reason in REASONS.values())
    assert "Plan: 9 to add, 1 to change, 0 to remove; " in shown
    assert re.search(r"; \d+ KiB -> \d+ KiB; bootkube.sh as in 4", shown)
    assert config.read_bytes() == before
    assert list(config.parent.iterdir()) == [config]


def test_a_plan_tells_the_port_the_order_and_the_day(config: Path, umbilical: Run) -> None:
    shown = umbilical("bootstrap", "plan", config, "--agent-port", "9123").out
    assert "Needs TCP 9123 from every node to the bootstrap node on aws" in shown
    command = f"--platform aws --machine-network 10.0.0.0/16 --infra-id {INFRA_ID} --release 4.18 --port 9123"
    assert f"umbilical firewall render {command}\n" in shown
    steps = ["create manifests", "create ignition-configs", "patch", "create cluster"]
    order = shown[shown.index("Order:") :]
    assert sorted(steps, key=order.index) == steps
    assert "24 hours" in order


def test_an_unknown_platform_is_refused_with_the_known_ones_and_letter_case_does_not_matter(
    config: Path, umbilical: Run
) -> None:
    config.write_bytes(bootstrap_config("4.18", platform="none", padding_bytes=1_200_000))
    for command in (["plan"], ["patch", "--in-place"], ["verify"]):
        err = umbilical("bootstrap", *command, config, "--platform", "foo", status=USAGE).err
        assert "'foo' is not a platform" in err
        assert "aws, azure" in err
    for name in ("aws", "AWS", "PowerVS"):
        err = umbilical("bootstrap", "plan", config, "--platform", name, status=CONFIGURATION).err
        assert err.startswith("UMB126 ")
    umbilical("bootstrap", "plan", config, "--platform", "none")


@pytest.mark.parametrize("options", [[], ["--node-ip", "10.0.0.5"]])
@pytest.mark.parametrize("platform", ["libvirt", *(name for name in PLATFORMS if not name.endswith("-upi"))])
def test_the_firewall_command_of_a_plan_works_as_it_is_printed(
    platform: str, options: list[str], config: Path, umbilical: Run
) -> None:
    config.write_bytes(bootstrap_config("4.18", platform=platform))
    offered = re.search(r"next: umbilical (firewall render .*)", umbilical("bootstrap", "plan", config, *options).out)
    assert offered is not None
    assert "--release 4.18" in offered[1]
    assert "8091" in umbilical(*shlex.split(offered[1])).out


def test_an_address_that_no_agent_can_dial_is_refused_with_the_reason(
    config: Path, umbilical: Run, monkeypatch: Patch
) -> None:
    for address, why in (
        ("127.0.0.1", "loopback"),
        ("::1", "loopback"),
        ("255.255.255.255", "broadcast"),
        ("0.0.0.1", "0.0.0.0/8"),
        ("240.0.0.1", "reserved"),
        ("::ffff:10.0.0.9", "IPv4 address in IPv6 form"),
        ("224.0.0.1", "multicast"),
        ("169.254.1.1", "link-local"),
        ("fe80::1%eth0", "zone"),
    ):
        err = umbilical("bootstrap", "patch", config, "--in-place", "--node-ip", address, status=USAGE).err
        assert f"agents on other nodes cannot dial {address}: " in err
        assert why in err
    monkeypatch.setenv("OPENSHIFT_INSTALL_BOOTSTRAP_NODE_IP", "127.0.0.1")
    assert "loopback" in umbilical("bootstrap", "plan", config, status=USAGE).err


def test_an_address_of_the_pod_or_service_network_is_refused(config: Path, umbilical: Run) -> None:
    for address, network in (("10.128.2.5", "pod network 10.128.0.0/14"), ("172.30.0.1", "service network")):
        err = umbilical("bootstrap", "patch", config, "--in-place", "--node-ip", address, status=CONFIGURATION).err
        assert err.startswith("UMB133 ")
        assert network in err


def test_a_plan_warns_of_networks_that_overlap(config: Path, umbilical: Run) -> None:
    assert "overlap" not in umbilical("bootstrap", "plan", config).out
    shown = umbilical("bootstrap", "plan", config, "--machine-network", "10.128.64.0/18").out
    assert "Note: machine network 10.128.64.0/18 and pod network 10.128.0.0/14 overlap: " in shown


def test_a_compressed_config_is_named_as_such(config: Path, umbilical: Run) -> None:
    config.write_bytes(gzip.compress(config.read_bytes()))
    err = umbilical("bootstrap", "plan", config, status=CONFIGURATION).err
    assert err.startswith("UMB140 ")
    assert "compressed with gzip" in err
    assert "gunzip" in err


def test_an_agent_based_installation_is_told_that_it_cannot_be_patched(tmp_path: Path, umbilical: Run) -> None:
    (tmp_path / "rendezvousIP").write_text("10.0.0.9")
    err = umbilical("bootstrap", "plan", "--dir", tmp_path, status=CONFIGURATION).err
    assert err.startswith("UMB170 ")
    assert "agent-based" in err
    assert "create ignition-configs" not in err


def test_a_plan_names_the_gates_where_the_built_in_tunnel_is_off(tmp_path: Path, umbilical: Run) -> None:
    path = tmp_path / "bootstrap.ign"
    path.write_bytes(bootstrap_config("5.0", native="off"))
    told = umbilical("bootstrap", "plan", path)
    assert "CRDCompatibilityRequirementOperator or ClusterAPIMachineManagement" in told.out


def test_a_plan_as_json_is_one_object_on_standard_output(config: Path, umbilical: Run) -> None:
    captured = umbilical("bootstrap", "plan", config, "-o", "json", "--show-anchors")
    assert json.loads(captured.out)["kind"] == "BootstrapPlan"
    assert "  A1  line 11: " in captured.err


def test_anchors_are_shown_even_where_the_patch_is_refused(tmp_path: Path, umbilical: Run) -> None:
    lines = bootkube_script("4.18").replace("touch /opt/openshift/.bootkube", "  touch /opt/openshift/.bootkube")
    path = tmp_path / "bootstrap.ign"
    path.write_bytes(bootstrap_config(script=lines))
    captured = umbilical("bootstrap", "plan", path, "--show-anchors", status=CONFIGURATION)
    assert "sha256 " in captured.out
    assert (
        "  A6  not found, same text with other indentation: line 391: touch /opt/openshift/.bootkube.done"
        in captured.out
    )
    assert captured.err.startswith("UMB121 bootkube.sh was not recognised: anchor A6 occurs 0 times")


def test_an_install_directory_gives_file_platform_and_warnings(tmp_path: Path, umbilical: Run) -> None:
    Directory(tmp_path).metadata(aws=None, vsphere={})
    (tmp_path / "bootstrap.ign").write_bytes(bootstrap_config("4.18"))
    (tmp_path / "install-config.yaml").write_text("platform: {vsphere: {}}\n")
    captured = umbilical("bootstrap", "plan", "--dir", tmp_path)
    assert "on vsphere" in captured.out
    assert f"umbilical firewall render --dir {tmp_path} --release 4.18\n" in captured.out
    assert "warning: install-config.yaml is newer than bootstrap.ign" in captured.err


@pytest.mark.parametrize("platform", ["aws", "libvirt"])
def test_the_firewall_command_that_is_offered_works_where_the_manifests_are_read_no_more(
    platform: str, tmp_path: Path, umbilical: Run
) -> None:
    path = tmp_path / "my cluster"
    path.mkdir()
    Directory(path).install_config().metadata(**{"aws": None, platform: {}})
    (path / "bootstrap.ign").write_bytes(bootstrap_config("4.18", platform=platform))
    offered = re.search(r"next: umbilical (firewall render .*)", umbilical("bootstrap", "plan", "--dir", path).out)
    assert offered is not None
    assert "8091" in umbilical(*shlex.split(offered[1])).out


def test_a_plan_refuses_a_foreign_authority_as_the_patch_does(config: Path, umbilical: Run) -> None:
    told = umbilical("bootstrap", "plan", config, "--from-install-state", status=CONFIGURATION)
    assert told.err.startswith("UMB130 patch cannot sign with an existing CA (--from-install-state")


@pytest.fixture
def patched(config: Path, umbilical: Run) -> Path:
    umbilical("bootstrap", "patch", config, "--in-place")
    return config


def test_undo_restores_the_file_and_its_mode_and_says_so(patched: Path, umbilical: Run) -> None:
    captured = umbilical("bootstrap", "undo", patched, "--in-place")
    assert patched.read_bytes() == bootstrap_config("4.18")
    assert patched.stat().st_mode & 0o777 == 0o640
    assert captured.out == ""
    assert "byte for byte as it was before the patch" in captured.err


def test_undo_goes_to_another_file_or_into_an_install_directory(patched: Path, umbilical: Run) -> None:
    before = patched.read_bytes()
    out = patched.parent / "original.ign"
    umbilical("bootstrap", "undo", patched, "--out", out)
    assert out.read_bytes() == bootstrap_config("4.18")
    assert patched.read_bytes() == before
    umbilical("bootstrap", "undo", "--dir", patched.parent)
    assert patched.read_bytes() == bootstrap_config("4.18")


def test_undo_of_a_file_that_was_marshalled_anew_says_that_the_rest_is_as_found(patched: Path, umbilical: Run) -> None:
    patched.write_text(json.dumps(json.loads(patched.read_bytes()), indent=1))
    assert (
        "other changes since the patch are kept:\n  bootkube.sh is as before, but other entries or the formatting"
        in umbilical("bootstrap", "undo", patched, "--in-place").err
    )
    assert json.loads(patched.read_bytes()) == json.loads(bootstrap_config("4.18"))


def test_an_edited_line_of_the_installer_is_told_alike_by_verify_patch_and_undo(patched: Path, umbilical: Run) -> None:
    document = IgnitionDocument(patched.read_bytes())
    script = document.config.files_at(BOOTKUBE)[0].text().replace("Starting cluster-bootstrap", "Starting mine")
    patched.write_bytes(document.with_content(BOOTKUBE, script.encode()).content)
    edit = """bootkube.sh has a new or changed line 'echo "Starting mine..."'"""
    verified = umbilical("bootstrap", "verify", patched, "--only", "B10", status=1)
    assert edit in verified.out
    assert "undo keeps edits of the installer's lines" in verified.out
    again = umbilical("bootstrap", "patch", patched, "--in-place", "--agent-port", "9123").err
    assert f"warning: B10 {edit} (also before the patch)" in again
    assert "verified, except B10" in again
    undone = umbilical("bootstrap", "undo", patched, "--in-place").err
    assert "other changes since the patch are kept" in undone
    assert edit in undone
    assert "byte for byte" not in undone


def test_undo_of_a_file_that_is_not_patched_is_refused(tmp_path: Path, umbilical: Run) -> None:
    path = tmp_path / "bootstrap.ign"
    path.write_bytes(bootstrap_config("4.18"))
    told = umbilical("bootstrap", "undo", path, "--in-place", status=CONFIGURATION)
    assert told.err.startswith("UMB128 the config is not patched\n")


KEY = "-----BEGIN PRIVATE KEY-----\nMIIsecretsecret\n"


def compared(script: str = "echo one\n", mode: int = 365, key: str = KEY, **sections: Any) -> dict[str, Any]:
    files = [
        {"path": "/usr/local/bin/bootkube.sh", "mode": mode, "contents": {"source": format_data_url(script.encode())}},
        {"path": "/opt/openshift/tls/ca.pem", "contents": {"source": format_data_url(key.encode())}},
    ]
    return {"ignition": {"version": "3.2.0"}, "storage": {"files": files}} | sections


@pytest.fixture
def diff(tmp_path: Path, umbilical: Run) -> Run:
    def run(old: Any, new: Any, *options: str, status: int = 1) -> Told:
        paths = [tmp_path / "old.ign", tmp_path / "new.ign"]
        for path, value in zip(paths, (old, new), strict=True):
            path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
        return umbilical("bootstrap", "diff", *paths, *options, status=status)

    return run


def test_the_same_config_gives_zero_whatever_its_formatting(diff: Run) -> None:
    assert diff(compared(), compared(), status=0) == ("", "no difference, byte for byte\n")
    out, err = diff(compared(), json.dumps(compared(), indent=2).encode(), status=0)
    assert out == ""
    assert "only formatting" in err


def test_a_changed_script_is_shown_line_by_line_or_counted(diff: Run) -> None:
    ran = diff(compared(), compared("set -e\necho one\n", mode=420))
    title, mode, contents, *lines = ran.lines
    assert title == "~ file /usr/local/bin/bootkube.sh"
    assert mode == "    mode: 0555 -> 0644"
    assert contents.startswith("    contents: 9 bytes sha256:")
    assert contents.endswith(", lines +1 -0")
    assert lines == ["    @@ -1 +1,2 @@", "    +set -e", "     echo one"]
    assert ran.err == "0 added, 0 removed, 1 changed\n"
    ran = diff(compared(), compared("set -e\necho one\n"), "--stat")
    assert ran.lines[-1].endswith(", lines +1 -0")
    assert "set -e" not in ran.out


def test_secrets_are_not_shown_unless_asked_for(diff: Run) -> None:
    for output in ("table", "json"):
        changed = compared(key=KEY.replace("MII", "MIJ"))
        hidden = diff(compared(), changed, "-o", output)
        shown = diff(compared(), changed, "-o", output, "--show-secrets")
        assert "secretsecret" not in hidden.out + hidden.err
        assert "+MIJsecretsecret" in shown.out
        assert "/opt/openshift/tls/ca.pem" in hidden.out
        old, new = (compared(passwd={"users": [{"name": "core", "passwordHash": f"$6${each}"}]}) for each in "ab")
        assert "$6$" not in diff(old, new, "-o", output).out
        assert "$6$b" in diff(old, new, "-o", output, "--show-secrets").out


def test_units_and_other_fields_are_shown(diff: Run) -> None:
    unit = {"name": "a.service", "enabled": True}
    ran = diff(compared(), compared(systemd={"units": [unit]}, passwd={"users": [{"name": "core"}]}))
    assert ran.lines == ["+ unit a.service", "    enabled: true", '+ passwd.users: [{"name": "core"}]']
    assert ran.err == "2 added, 0 removed, 0 changed\n"


def test_a_program_gets_json_also_when_nothing_differs(diff: Run) -> None:
    ran = diff(compared(), compared("echo two\n"), "-o", "json")
    answer = ran.json()
    (difference,) = answer["differences"]
    assert (answer["kind"], difference["kind"], difference["change"]) == ("BootstrapDiff", "file", "changed")
    (content,) = difference["contents"]
    assert content["lines"][-2:] == ["-echo one", "+echo two"]
    assert (content["old"]["bytes"], len(content["new"]["sha256"]), ran.err) == (9, 64, "")
    assert diff(compared(), compared(), "-o", "json", status=0).json()["differences"] == []


def test_a_terminal_does_not_obey_what_a_config_says(diff: Run) -> None:
    ran = diff(compared("a\n"), compared("\x1b[2Jb\n") | {"\x1b[2J": "\x1b[2J\ud800"})
    assert "\x1b" not in ran.out
    assert "\\x1b[2J" in ran.out
    assert "not text" in ran.out


def test_a_long_value_is_cut(diff: Run) -> None:
    ran = diff(compared(x="a"), compared(x="b" * 10_000))
    assert len(ran.out) < 300
    assert ran.out.endswith("...\n")


def test_what_is_no_config_is_an_error_that_names_the_file(diff: Run) -> None:
    out, err = diff(compared(), b"\xef\xbb\xbf{}", status=3)
    assert out == ""
    first, why, _ = err.splitlines()
    assert first.startswith("UMB140 ")
    assert "new.ign" in first
    assert "byte order mark" in why


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path, umbilical: Run) -> None:
    for absent in (tmp_path / "absent.ign", tmp_path):
        assert umbilical("bootstrap", "diff", absent, absent, status=3).err.startswith(
            f"UMB002 could not read {absent}"
        )
