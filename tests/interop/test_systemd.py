"""Our units under a real systemd of the test's own: start, dial, reload, the passed socket, watchdog and stop."""

import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import click
import pytest
from tests.support.own_systemd import PROGRAMS, PYTHON, OwnSystemd, own_systemd
from tests.support.tunnel_pki import make_tunnel_pki

import umbilical
from umbilical.cli import main

pytestmark = [pytest.mark.real(*PROGRAMS), pytest.mark.root]

SERVER: Final = "umbilical-server.service"
AGENT: Final = "umbilical-agent.service"
SOCKET: Final = "/run/umbilical/server.sock"
PROGRAM: Final = "/opt/umbilical/bin/umbilical"
FILES: Final = "/etc/umbilical"
SERVER_OPTIONS: Final = (
    *(f"--listen=unix:{SOCKET}", "--mode=http-connect", "--workers=2", f"--agent-ca={FILES}/ca.crt"),
    *(f"--agent-cert={FILES}/proxy-server.crt", f"--agent-key={FILES}/proxy-server.key"),
)
AGENT_OPTIONS: Final = (
    *("--server=127.0.0.1:8091", "--sync-interval-cap=1s", f"--ca={FILES}/ca.crt"),
    "--allow-destination=127.0.0.1:8093",
    *(f"--cert={FILES}/proxy-agent.crt", f"--key={FILES}/proxy-agent.key"),
)
START: Final = f"""\
#!/bin/sh
export PYTHONPATH=/opt/umbilical/lib LD_LIBRARY_PATH={PYTHON}/lib
exec {PYTHON}/bin/python{sys.version_info.major}.{sys.version_info.minor} -P -m umbilical "$@"
"""
"""The library's path: a Python that was built elsewhere looks for its own library there."""
DIAL: Final = f"""\
import socket
with socket.socket(socket.AF_UNIX) as client:
    client.settimeout(30)
    client.connect("{SOCKET}")
    client.sendall(b"CONNECT 127.0.0.1:8093 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
    print(client.recv(4096).split(b"\\r\\n")[0].decode())
    client.sendall(b"GET /healthz HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
    print(client.recv(4096).splitlines()[-1].decode())
"""


@pytest.fixture
def system(tmp_path: Path) -> Iterator[OwnSystemd]:
    """Booted, with the units that `install` renders and one change: shorter watchdogs."""
    with own_systemd(tmp_path / "root") as system:
        install_program(system.root / "opt" / "umbilical")
        files = system.root / FILES.lstrip("/")
        files.mkdir(mode=0o700)
        make_tunnel_pki(files)
        for daemon, options in (("server", SERVER_OPTIONS), ("agent", AGENT_OPTIONS)):
            where = ("--out", str(system.units), "--program", PROGRAM)
            assert main.run([daemon, "install", "--systemd", *where, *options]) == 0
        for unit in (SERVER, AGENT):
            (system.units / f"{unit}.d").mkdir()
            (system.units / f"{unit}.d" / "watchdog.conf").write_text("[Service]\nWatchdogSec=6s\n")
        system.boot(SERVER, AGENT)
        yield system


def install_program(folder: Path) -> None:
    for package in (umbilical, click):
        assert package.__file__ is not None
        source = Path(package.__file__).parent
        shutil.copytree(source, folder / "lib" / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "bin").mkdir()
    (folder / "bin" / "umbilical").write_text(START)
    (folder / "bin" / "umbilical").chmod(0o755)


def test_units_start_serve_reload_restart_and_stop_under_systemd(system: OwnSystemd) -> None:
    system.until(lambda: system.show(AGENT, "StatusText") == "servers connected: 2 of 2", "the agent is connected")
    assert [system.show(unit, "ActiveState") for unit in (SERVER, AGENT)] == ["active", "active"]
    assert dial(system) == ["HTTP/1.1 200 Connection Established", "ok"]
    check_confinement(system)

    before = system.show(SERVER, "MainPID")
    assert system.run("systemctl", "reload", SERVER, AGENT) == ""
    assert (system.show(SERVER, "ActiveState"), system.show(SERVER, "MainPID")) == ("active", before)

    system.run("systemctl", "stop", SERVER)
    assert (system.show(SERVER, "Result"), system.show(SERVER, "ExecMainStatus")) == ("success", "0")
    system.until(lambda: dial(system)[-1:] == ["ok"], "the socket starts the server again")

    for unit in (SERVER, AGENT):
        system.run("sh", "-c", f"kill -STOP {system.show(unit, 'MainPID')}")
    for unit in (SERVER, AGENT):
        system.until(partial(was_restarted, system, unit), f"{unit} hangs and is restarted")
    system.until(lambda: dial(system)[-1:] == ["ok"], "the tunnel works again")

    system.run("systemctl", "stop", "umbilical-server.socket", SERVER, AGENT)
    for unit in (SERVER, AGENT):
        assert (system.show(unit, "Result"), system.show(unit, "ExecMainStatus")) == ("success", "0")
    assert system.run("ls", "-A", "/run/umbilical") == "", "the socket is removed with its unit"


def was_restarted(system: OwnSystemd, unit: str) -> bool:
    return int(system.show(unit, "NRestarts")) > 0


def dial(system: OwnSystemd) -> list[str]:
    return system.run("python3", "-c", DIAL).splitlines()


def check_confinement(system: OwnSystemd) -> None:
    """The kernel's view of each process: no capability, no new privileges, a filter of system calls, not root."""
    for unit in (SERVER, AGENT):
        pid = system.show(unit, "MainPID")
        lines = system.run("cat", f"/proc/{pid}/status").splitlines()
        facts = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        assert int(facts["CapEff"], 16) == int(facts["CapBnd"], 16) == 0
        assert (facts["NoNewPrivs"], facts["Seccomp"]) == ("1", "2")
        assert int(facts["Uid"].split()[0]) > 60_000
