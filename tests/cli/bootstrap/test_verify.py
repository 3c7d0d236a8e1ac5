"""`umbilical bootstrap verify`, and how its checks are chosen."""

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import pytest
from tests.support.bootstrap_corpus import bootstrap_config
from tests.support.commands import Run, Told, stand_in
from tests.support.fixture_types import Patch
from tests.support.inline_tunnel import inline_config
from tests.support.install_directories import Directory
from tests.support.verify_subjects import Subject, subject

from umbilical.bootstrap.names import INLINE
from umbilical.bootstrap.verify.catalogue import CATALOGUE
from umbilical.cli.findings import chosen, selection


@pytest.fixture
def run(tmp_path: Path, umbilical: Run, monkeypatch: Patch) -> Run:
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def verify(*arguments: object, content: bytes | None = None, status: int = 0) -> Told:
        if content is None:
            return umbilical("bootstrap", "verify", *arguments, status=status)
        path = tmp_path / "bootstrap.ign"
        path.write_bytes(content)
        return umbilical("bootstrap", "verify", path, *arguments, status=status)

    return verify


def broken() -> bytes:
    """A tunnel whose agents dial a port that nobody listens on."""
    return (
        subject("patched").replaced("agent_daemon_set", "--proxy-server-port=8091", "--proxy-server-port=8092").content
    )


def test_a_tunnel_that_is_right_is_told_with_what_it_is(run: Run) -> None:
    out, err = run(content=subject("patched").content)
    assert err == ""
    lines = out.splitlines()
    assert "tunnel state patched, shape openshift, mode grpc, platform aws" in lines[0]
    assert re.search(r"certificates: \d+h\d\dm left", lines[0])
    assert lines[2] == "Structure of the config"
    assert lines[-1].startswith(f"Result √ {len(CATALOGUE)} checks:")


def test_a_failure_is_told_with_its_evidence_and_a_way_out(run: Run) -> None:
    out = run(content=broken(), status=1).out
    lines = out.splitlines()
    place = next(index for index, line in enumerate(lines) if line.startswith("× C6"))
    assert "agents dial port '8092', but the server listens on '8091'" in lines[place + 1]
    assert lines[place + 3].startswith("    fix: ")


def test_what_is_no_config_is_a_finding_and_no_crash(run: Run) -> None:
    out, err = run(content=b"nonsense", status=1)
    assert err == ""
    assert "× S1" in out


def test_json_says_what_was_judged(run: Run) -> None:
    value = run("-o", "json", content=subject("seed").content).json()
    judged = (value["profile"], value["shape"], value["mode"])
    assert (value["kind"], *judged) == ("BootstrapReport", "patched", "seed", "http-connect")
    assert value["summary"]["failed"] == 0
    assert {finding["id"] for finding in value["findings"]} == {check.id for check in CATALOGUE}


def test_junit_has_a_case_for_every_check(run: Run) -> None:
    out = run("-o", "junit", content=broken(), status=1).out
    root = ElementTree.fromstring(out)
    assert len(list(root.iter("testcase"))) == len(CATALOGUE)
    assert [str(failure.get("type")) for failure in root.iter("failure")] == ["C6"]


def test_checks_are_picked_and_none_left_is_a_mistake(run: Run) -> None:
    report = run("--only", "X", "--skip", "X2", "-o", "json", content=subject("patched").content).json()
    assert [finding["id"] for finding in report["findings"]] == ["X1", "X3", "X4"]
    out, err = run("--only", "C", "--skip", "C1.*,C[2-9]", content=subject("patched").content, status=2)
    assert out == ""
    assert "leave no check" in err


def test_failures_left_out_warnings_and_expectations_decide_the_status(run: Run) -> None:
    run("--skip", "C6", content=broken())
    run("--only", "!C6", content=broken())
    for expected, status in (("patched", 0), ("native-on", 1), ("native-off", 1), ("none", 1)):
        run("--expect", expected, content=subject("patched").content, status=status)
    edited = subject("patched").with_text("/usr/local/bin/empty.sh", "# x\n").content
    run(content=edited)
    run("--fail-on", "warn", content=edited, status=1)


def test_a_broken_pattern_is_wrong_usage(run: Run) -> None:
    for text in ("S(", "!["):
        with pytest.raises(click.BadParameter, match="is not a list of ids, groups or patterns"):
            selection(text)
        run("--only", text, content=b"{}", status=2)


def test_a_file_without_a_tunnel_passes_and_says_so(run: Run) -> None:
    out, err = run(content=bootstrap_config("4.18"))
    assert "tunnel state none" in out.splitlines()[0]
    assert "the file has no tunnel to check" in err
    assert "--expect" in err
    assert run("--expect", "none", content=bootstrap_config("4.18")).err == ""


def test_the_first_plans_own_file_fails_with_the_reason_why_its_egress_file_has_no_effect(run: Run) -> None:
    out, err = run(content=inline_config(), status=1)
    assert "tunnel state inline, shape seed, mode http-connect" in out.splitlines()[0]
    assert "kube-apiserver ignores egressSelectorConfiguration in /opt/openshift/egress-selector-config.yaml" in err
    assert "verify --explain C2" in err
    assert "/etc/kubernetes/bootstrap-configs is /etc/kubernetes/config" in run("--explain", "C2").out
    assert run(content=subject("patched").with_text("override", "5").content, status=1).err == ""


def test_shape_mode_and_platform_can_be_demanded(run: Run) -> None:
    content = subject("patched").content
    run("--shape", "openshift", "--mode", "grpc", content=content)
    run("--shape", "seed", content=content, status=1)
    run("--mode", "http-connect", content=content, status=1)
    big = bootstrap_config("4.18", padding_bytes=900_000)
    run("--platform", "vsphere", content=big, status=1)
    run("--platform", "gcp", content=big)


def test_the_list_shows_every_check_and_the_first_plans_items_also_as_data(run: Run) -> None:
    out = run("--list").out
    lines = out.splitlines()
    assert all(any(line.startswith(f"{check.id} ") for line in lines) for check in CATALOGUE)
    assert any(line.startswith("L5 ") for line in lines)
    assert "task 2.6" in out
    assert lines[-2].endswith(": B3")
    assert lines[-1].endswith("base64 -d | grep -e --config-override-files")
    value = run("--list", "-o", "json", "--only", "B").json()
    assert [check["id"] for check in value["checks"]] == [f"B{number}" for number in range(1, 12)]
    last = value["firstPlan"][4]
    assert last == {"item": 5, "title": last["title"], "checks": ["B3"], "command": lines[-1].strip()}


@pytest.mark.real("jq")
@pytest.mark.parametrize("kind", ["patched", "native", "inline"])
def test_each_command_of_the_first_plan_prints_its_part_of_the_file(run: Run, tmp_path: Path, kind: str) -> None:
    given = Subject(inline_config(), INLINE) if kind == "inline" else subject(kind)
    listed = run("--list", "-o", "json", content=given.content).json()["firstPlan"]
    printed = [_output(item["command"], tmp_path) for item in listed]
    image, pod, agents, flag = printed[1:]
    assert printed[0] == given.text("egress")
    assert "KONNECTIVITY_IMAGE=$(image_for apiserver-network-proxy)" in image
    assert re.search("kind: Pod\n.*/usr/bin/proxy-server.*--agent-port=8091", pod, re.DOTALL)
    assert re.search("kind: DaemonSet\n.*/usr/bin/proxy-agent.*--proxy-server-port=8091", agents, re.DOTALL)
    assert flag.strip().removesuffix(" \\") == f"--config-override-files={given.names.override_in_render_container}"
    if kind == "patched":
        # Without a file the commands are those for a patched one.
        assert [item["command"] for item in run("--list", "-o", "json").json()["firstPlan"]] == [
            item["command"].replace(str(tmp_path / "bootstrap.ign"), "bootstrap.ign") for item in listed
        ]


def _output(command: str, folder: Path) -> str:
    ran = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, timeout=30, check=True)
    assert ran.stderr == ""
    return ran.stdout


def test_a_check_explains_itself_and_an_unknown_one_is_wrong_usage(run: Run) -> None:
    out = run("--explain", "b3").out
    assert out.startswith("B3 ")
    assert "  why: " in out
    assert "first plan's checklist (task 2.6): 5" in out
    run("--explain", "Q7", status=2)


def test_a_file_or_a_directory_must_be_named(run: Run, tmp_path: Path) -> None:
    run(status=2)
    run(tmp_path / "absent.ign", status=3)


def test_an_install_directory_names_file_and_platform(run: Run, tmp_path: Path) -> None:
    Directory(tmp_path).metadata(aws=None, gcp={"region": "x"})
    (tmp_path / "bootstrap.ign").write_bytes(subject("patched").content)
    out = run("--dir", tmp_path).out
    assert "platform gcp" in out.splitlines()[0]


def test_colour_follows_the_environment(run: Run, monkeypatch: Patch) -> None:
    assert "\x1b" not in run(content=broken(), status=1).out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[31m×" in run(content=broken(), status=1).out


def test_without_bash_the_syntax_is_skipped(run: Run, monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    report = run("--only", "B8", "-o", "json", content=subject("patched").content).json()
    assert report["findings"][0]["outcome"] == "skipped"


def test_bashs_own_words_are_the_evidence(run: Run) -> None:
    patched = subject("patched")
    content = patched.with_text("library", patched.text("library") + "fi\n").content
    assert "syntax error" in run("--only", "B8", content=content, status=1).out


def test_a_running_tunnel_needs_to_be_somewhere(run: Run) -> None:
    assert "--ssh-host" in run("--live", status=2).err


@pytest.fixture
def ssh_log(tmp_path: Path, monkeypatch: Patch) -> Path:
    """What ssh is given is known to arrive (tests/host/test_ssh.py); here it is kept, and no machine answers."""
    log = tmp_path / "ssh.log"
    log.touch()
    stand_in(tmp_path, "ssh", f"echo \"$@\" >>'{log}'\nexit 255", monkeypatch)
    return log


def outcomes(out: str) -> dict[str, str]:
    value = json.loads(out)
    assert value["kind"] == "LiveReport"
    return {finding["id"]: finding["outcome"] for finding in value["findings"]}


def test_a_machine_that_does_not_answer_is_a_finding(run: Run, ssh_log: Path) -> None:
    out = run("--live", "--ssh-host", "192.0.2.7", "--ssh-user", "me", "--ssh-port", "2022", "-o", "json", status=1).out
    found = outcomes(out)
    assert found["L1"] == "failed"
    assert found["L11"] == "skipped"
    assert all(word in ssh_log.read_text() for word in ("192.0.2.7", "me", "2022"))


def test_the_directory_names_machine_and_key(run: Run, ssh_log: Path, tmp_path: Path) -> None:
    import base64

    key = base64.b64encode(b"-----BEGIN OPENSSH PRIVATE KEY-----\nx\n").decode()
    folder = tmp_path / "install"
    folder.mkdir()
    directory = Directory(folder).install_config().metadata().state(tls_BootstrapSSHKeyPair={"Priv": key, "Pub": ""})
    directory.machine(("ExternalIP", "198.51.100.4"), ("InternalIP", "10.0.0.9"))
    out, err = run("--live", "--dir", folder, "-o", "json", "--only", "L1,L2", status=1)
    assert err == ""
    assert outcomes(out) == {"L1": "failed", "L2": "skipped"}
    assert "198.51.100.4" in ssh_log.read_text()
    assert "OPENSSH" not in ssh_log.read_text() + out


def test_a_file_tells_what_the_running_tunnel_must_be_like(tmp_path: Path) -> None:
    from umbilical.cli.bootstrap.verify import _expected

    moved = subject("seed").replaced("server_pod", "--agent-port=8091", "--agent-port=8191")
    path = tmp_path / "seed.ign"
    path.write_bytes(moved.content)
    options: dict[str, Any] = dict.fromkeys(("shape", "mode", "platform", "namespace", "kubeconfig", "ssh_host"))
    expected = _expected(path, None, options)
    assert (expected.ports.agent, expected.ports.health, expected.namespace) == (8191, 2041, "kube-system")
    assert expected.paths.socket == "/etc/kubernetes/bootstrap-configs/konnectivity-server.socket"
    assert _expected(None, None, options).namespace == "openshift-bootstrap-konnectivity"
    assert _expected(None, None, {**options, "namespace": "mine"}).namespace == "mine"


def test_a_subject_is_what_the_user_gave(run: Run) -> None:
    hostile = Subject(subject("patched").content).entry("/usr/local/bin/empty.sh", path="/x\x1b[2J")
    assert "\x1b" not in run(content=hostile.content).out


@dataclass(frozen=True)
class Item:
    id: str


ITEMS = [Item(name) for name in ("CFG-01", "CFG-02", "PKI-01", "PKI-12")]


def _ids(only: tuple[str, ...] = (), skip: tuple[str, ...] = ()) -> list[str]:
    return [item.id for item in chosen(ITEMS, [selection(one) for one in only], [selection(one) for one in skip])]


def test_ids_groups_and_patterns() -> None:
    for only, skip, taken in (
        *(((), (), [item.id for item in ITEMS]), (("cfg-01",), (), ["CFG-01"]), (("PKI",), (), ["PKI-01", "PKI-12"])),
        *((("CFG-01,PKI-1.",), (), ["CFG-01", "PKI-12"]), ((), ("CFG", "PKI-12"), ["PKI-01"])),
        *((("!CFG",), (), ["PKI-01", "PKI-12"]), (("CFG", "!CFG-02"), (), ["CFG-01"])),
    ):
        assert _ids(only, skip) == taken
