"""systemd units: what systemd itself reads in them, and what it says about their hardening."""

import os
import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from umbilical.fault import RenderError
from umbilical.manifests.systemd_units import ServiceUnit, UnitOption, quoted, quoted_program, units

SERVER = ServiceUnit(
    name="umbilical-server",
    description="A server",
    command=("/bin/true", "server", "run"),
    options=(
        UnitOption("--agent-key", "/etc/keys/100%.key", is_file=True),
        UnitOption("--id", "a b"),
        UnitOption("--lease-selector", ""),
        UnitOption("--publish-lease"),
    ),
    stop_seconds=60.0,
    socket_path="/run/umbilical/50%.sock",
)
WORST_EXPOSURE = 2.5


def texts(unit: ServiceUnit) -> dict[str, str]:
    return {asset.path: asset.content.decode() for asset in units(unit, "umbilical server install --systemd")}


def test_a_service_with_a_unix_socket_gets_a_socket_unit_and_another_does_not() -> None:
    with_socket = texts(SERVER)
    assert list(with_socket) == ["umbilical-server.service", "umbilical-server.socket"]
    assert "Requires=umbilical-server.socket\n" in with_socket["umbilical-server.service"]
    assert "Also=umbilical-server.socket\n" in with_socket["umbilical-server.service"]
    assert "ListenStream=/run/umbilical/50%%.sock\n" in with_socket["umbilical-server.socket"]
    (without,) = texts(replace(SERVER, socket_path="")).values()
    assert ".socket" not in without


def test_files_become_credentials_and_options_name_the_copies() -> None:
    text = texts(SERVER)["umbilical-server.service"]
    assert "LoadCredential=agent-key:/etc/keys/100%%.key\n" in text
    command = text[text.index("ExecStart=") : text.index("ExecReload")]
    assert command.split("\\\n") == [
        "ExecStart=/bin/true server run ",
        "    --agent-key %d/agent-key ",
        '    --id "a b" ',
        '    --lease-selector "" ',
        "    --publish-lease\n",
    ]


def test_a_low_port_keeps_one_capability_and_no_user_namespace() -> None:
    low = texts(replace(SERVER, has_low_port=True))["umbilical-server.service"]
    assert "\nCapabilityBoundingSet=CAP_NET_BIND_SERVICE\nAmbientCapabilities=CAP_NET_BIND_SERVICE\n" in low
    assert "\nPrivateUsers" not in low
    usual = texts(SERVER)["umbilical-server.service"]
    assert "\nCapabilityBoundingSet=\nPrivateUsers=yes\n" in usual


@pytest.mark.parametrize("path", ["/run/a\nExecStartPre=/bin/sh", " /run/a", "/run/a ", "/run/\x1b[2J"])
def test_a_path_that_would_change_the_unit_is_refused(path: str) -> None:
    for unit in (
        replace(SERVER, socket_path=path),
        replace(SERVER, options=(UnitOption("--ca", path, is_file=True),)),
    ):
        with pytest.raises(RenderError) as caught:
            units(unit, "x")
        assert caught.value.code == "UMB209"


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("plain-1./:=,@+&", "plain-1./:=,@+&"),
        ("", '""'),
        ("a b", '"a b"'),
        (";", '";"'),
        ("100%", "100%%"),
        ("$HOME ${X}", '"$$HOME $${X}"'),
        ("'\"\\", '"\'\\"\\\\"'),
        ("a\nb\u0085", '"a\\x0ab\\xc2\\x85"'),
        ("ü", '"ü"'),
    ],
)
def test_an_argument_is_written_so_that_systemd_reads_it_unchanged(word: str, text: str) -> None:
    assert quoted(word) == text


@pytest.mark.real("systemd-analyze")
def test_systemd_finds_no_fault_in_the_units(tmp_path: Path) -> None:
    for unit in (SERVER, replace(SERVER, name="low", has_low_port=True), replace(SERVER, name="tcp", socket_path="")):
        for name, text in texts(unit).items():
            (tmp_path / name).write_text(text)
    names = sorted(path.name for path in tmp_path.iterdir())
    done = _analyze("verify", "--man=no", *(f"./{name}" for name in names), folder=tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    (tmp_path / "tcp.service").write_text(text.replace("RestartSec=", "RestartSeconds="))
    assert "RestartSeconds" in _analyze("verify", "--man=no", "./tcp.service", folder=tmp_path).stderr


@pytest.mark.real("systemd-analyze")
@pytest.mark.parametrize("low", [False, True])
def test_systemd_rates_the_exposure_as_low(tmp_path: Path, low: bool) -> None:
    (tmp_path / "u.service").write_text(texts(replace(SERVER, has_low_port=low))["umbilical-server.service"])
    done = _analyze("security", "--offline=yes", "--no-pager", "./u.service", folder=tmp_path)
    found = re.search(r"Overall exposure level for u\.service: ([\d.]+)", done.stdout)
    assert found is not None, done.stdout + done.stderr
    assert float(found[1]) < WORST_EXPOSURE, done.stdout


@pytest.mark.real("systemd-analyze")
def test_systemd_reads_a_quoted_program_unchanged(tmp_path: Path) -> None:
    """`systemd-analyze verify` names a program that it does not find."""
    for number, word in enumerate(("/none/a b", "/none/100%", "/none/$HOME", "/none/ü")):
        name = f"q{number}.service"
        (tmp_path / name).write_text(f"[Service]\nExecStart={quoted_program(word)}\n")
        told = _analyze("verify", "--man=no", f"./{name}", folder=tmp_path).stderr
        assert f"Command {word} is not executable" in told, shlex.quote(told)


def _analyze(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    command = ["systemd-analyze", *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=120, check=False, env=environment
    )


def test_a_file_that_the_service_writes_is_below_a_folder_that_systemd_makes() -> None:
    unit = replace(SERVER, options=(UnitOption("--audit-file", "/var/log/umbilical/audit.jsonl", is_output=True),))
    text = texts(unit)["umbilical-server.service"]
    assert "LogsDirectory=umbilical\nLogsDirectoryMode=0700\n" in text
    assert "--audit-file /var/log/umbilical/audit.jsonl" in text
    assert "LoadCredential" not in text
    for path in ("/srv/audit.jsonl", "/var/log/audit.jsonl"):
        with pytest.raises(RenderError, match="UMB209"):
            texts(replace(unit, options=(UnitOption("--audit-file", path, is_output=True),)))
