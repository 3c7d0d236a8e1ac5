"""`umbilical server install` and `umbilical agent install`: units and static pods that run what was asked for."""

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from tests.cli.native import options_of
from tests.support.commands import Run
from tests.support.recipe_pages import sections

from umbilical.cli import agent, server
from umbilical.tunnel.settings import AgentSettings, ServerSettings

SERVER_FILES = ("--agent-cert=/etc/u/s.crt", "--agent-key=/etc/u/s.key", "--agent-ca=/etc/u/ca.crt")
UNIX = ("--listen=unix:/run/umbilical/server.sock", *SERVER_FILES)
AGENT = ("--ca=/etc/u/ca.crt", "--server=10.0.0.1:8091")
PROGRAM = ("--program", "/opt/umbilical/bin/umbilical")
SERVER_EVERYTHING = (
    *("--mode=http-connect", "--listen=[fd00::1]:9000", "--cert=c", "--key=/k", "--ca=/ca", *SERVER_FILES),
    *("--agents=:9001", "--admin=127.0.0.1:9002", "--health=[::]:9003", "--keepalive=1m30s", "--profiling", "--id=s 1"),
    *("--count=3", "--workers=2", "--token-cache=30s", "--kubernetes-qps=2.5", "--strategies=destHost,defaultRoute"),
    *("--tls-min-version=VersionTLS13", "--publish-lease", "--lease-labels=a=b,c=d", "--advertise=10.0.0.9:8091"),
    *("--graceful-shutdown=1h", "--dial-timeout=1500ms", "--idle-tunnel-timeout=0", "--window-memory=512Mi"),
    *("--agent-identities=/etc/u/rules", "--frontend-identities=CN=x,URI=y", "--log-format=json", "--log-level=debug"),
)
AGENT_EVERYTHING = (
    *("--ca=/ca", "--cert=/c", "--key=/k", "--server=10.0.0.1:8091", "--server=[fd00::1]:8091", "--alpn=a", "--alpn=b"),
    *("--id=a1", "--identifiers=ipv4=1.2.3.4&default-route=true", "--sync-interval=100ms", "--token-file=/token"),
    *("--sync-forever", "--count-leases", "--lease-selector=", "--count-source=max", "--window-memory=auto"),
)


def units(umbilical: Run, daemon: str, *arguments: str) -> str:
    return umbilical(daemon, "install", "--systemd", *PROGRAM, *arguments).out


def pod(umbilical: Run, daemon: str, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(umbilical(daemon, "install", "--static-pod", *arguments).out)
    return found


def command_line(unit: str) -> list[str]:
    """Return the words of ExecStart, with the paths of files in place of the credentials."""
    files = dict(re.findall(r"^LoadCredential=([^:]+):(.*)$", unit, re.MULTILINE))
    found = re.search(r"^ExecStart=((?:.*\\\n)*.*)$", unit, re.MULTILINE)
    assert found is not None
    words = shlex.split(found[1].replace("\\\n", " "))
    return [files[word.removeprefix("%d/")] if word.startswith("%d/") else word for word in words]


def _server_settings(words: list[str]) -> ServerSettings:
    return server.server_settings(options_of(server.run, words), may_come_later=True)


def _agent_settings(words: list[str]) -> AgentSettings:
    return agent.agent_settings(options_of(agent.run, words), may_come_later=True)


@pytest.mark.parametrize(
    ("daemon", "given", "settings"),
    [
        ("server", SERVER_EVERYTHING, _server_settings),
        ("server", (*UNIX, "--id=s"), _server_settings),
        ("agent", AGENT_EVERYTHING, _agent_settings),
        ("agent", (*AGENT, "--id=a"), _agent_settings),
    ],
)
def test_both_forms_run_the_daemon_with_the_settings_that_were_given(
    umbilical: Run, daemon: str, given: tuple[str, ...], settings: Any
) -> None:
    program, *words = command_line(units(umbilical, daemon, *given))
    assert (program, words[:2]) == (PROGRAM[1], [daemon, "run"])
    absolute = [f"--cert={Path.cwd()}/c" if word == "--cert=c" else word for word in given]
    assert settings(words[2:]) == settings(absolute)

    below = [re.sub("=/(c|k|ca|token)$", r"=/etc/u/\1", word) for word in absolute]
    below = ["--cert=/etc/u/c" if word.startswith("--cert=") else word for word in below]
    (container,) = pod(umbilical, daemon, *below)["spec"]["containers"]
    assert (container["command"], container["args"][:2]) == (["umbilical"], [daemon, "run"])
    assert settings(container["args"][2:]) == settings(below)


@pytest.mark.parametrize(("daemon", "group"), [("server", server.server), ("agent", agent.agent)])
def test_install_takes_every_option_of_run(daemon: str, group: click.Group) -> None:
    run, install = ({option.name for option in group.commands[name].params} for name in ("run", "install"))
    assert install - run == {"systemd", "static_pod", "out", "overwrite", "program", "image"}
    assert run - install == set()


def test_the_environment_counts_as_given(umbilical: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UMBILICAL_AGENT_INSTALL_DRAIN_LINGER", "7s")
    assert "--drain-linger 7s" in units(umbilical, "agent", *AGENT)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("server", "install", *UNIX), "UMB001 umbilical server install: wrong usage"),
        (("server", "install", "--systemd"), "UMB001 umbilical server install: wrong usage"),
        (("server", "install", "--systemd", "--static-pod", *UNIX), "UMB001 umbilical server install: wrong usage"),
        (("server", "install", "--static-pod", *PROGRAM, *UNIX), "UMB001 umbilical server install: wrong usage"),
        (("server", "install", "--systemd", "--image=a", *UNIX), "UMB001 umbilical server install: wrong usage"),
        (("server", "install", "--static-pod", "--image=a b", *UNIX), "UMB110 image a b is not valid"),
        (("server", "install", "--static-pod", "--listen=unix:/run/x", *SERVER_FILES), "UMB214 the pod would get all"),
        (("server", "install", "--systemd", *UNIX[:-1]), "UMB201 any agent would be accepted"),
        (("server", "install", "--systemd", *UNIX, "--cert=/c"), "UMB004 --cert, --key, --ca and --crl cannot be"),
        (("server", "install", "--systemd", "--listen=unix:/run/x ", *SERVER_FILES), "UMB209 '/run/x '"),
        (("agent", "install", "--systemd", "--ca=/ca"), "UMB001 agent run needs --server"),
    ],
)
def test_what_run_would_refuse_is_not_rendered(umbilical: Run, arguments: tuple[str, ...], line: str) -> None:
    status = 2 if line.startswith("UMB001") else 3
    told = umbilical(*arguments, status=status)
    assert told.err.startswith(line)
    assert told.out == ""


def test_a_stopping_server_gets_the_time_that_its_tunnels_get_and_more(umbilical: Run) -> None:
    assert "TimeoutStopSec=60s\n" in units(umbilical, "server", *UNIX)
    assert "TimeoutStopSec=120s\n" in units(umbilical, "server", *UNIX, "--graceful-shutdown=90s")
    assert "TimeoutStopSec=90s\n" in units(umbilical, "agent", *AGENT)


def test_a_port_below_1024_needs_a_capability(umbilical: Run) -> None:
    for option in ("--agents=:443", "--health=:80", "--admin=127.0.0.1:1023"):
        assert "AmbientCapabilities=CAP_NET_BIND_SERVICE" in units(umbilical, "server", *UNIX, option)
    assert "AmbientCapabilities" not in units(umbilical, "server", *UNIX, "--agents=:1024")


def test_units_are_written_with_the_next_commands_and_are_not_replaced(umbilical: Run, tmp_path: Path) -> None:
    folder = tmp_path / "units"
    told = umbilical("server", "install", "--systemd", *PROGRAM, *UNIX, "--out", folder)
    assert [line.split()[2] for line in told.lines] == ["umbilical-server.service", "umbilical-server.socket"]
    assert (folder / "umbilical-server.service").stat().st_mode & 0o777 == 0o644
    assert told.err.splitlines() == [
        "next, as root on the machine that runs the service:",
        f"  cp {folder}/umbilical-server.service {folder}/umbilical-server.socket /etc/systemd/system/",
        "  systemctl daemon-reload && systemctl enable --now umbilical-server.socket umbilical-server.service",
        "  systemctl status umbilical-server.service",
    ]
    again = umbilical("server", "install", "--systemd", *PROGRAM, *UNIX, "--out", folder, status=3)
    assert again.err.startswith("UMB801 ")
    umbilical("server", "install", "--systemd", *PROGRAM, *UNIX, "--out", folder, "--overwrite")


def test_the_unit_names_the_program_that_runs_or_the_one_beside_python(
    umbilical: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, program = tmp_path / "__main__.py", tmp_path / "umbilical"
    module.touch()
    program.touch(mode=0o755)
    beside = Path(sys.executable).parent / "umbilical"
    for started, named in ((program, program), (module, beside), (tmp_path, beside)):
        monkeypatch.setattr(sys, "argv", [str(started)])
        assert command_line(umbilical("agent", "install", "--systemd", *AGENT).out)[0] == str(named)


def test_a_program_that_the_unit_would_not_see_is_noted(umbilical: Run, tmp_path: Path) -> None:
    (tmp_path / "umbilical").touch()
    for program, folder in (("/home/me/.venv/bin/umbilical", "/home"), ("/root/u/umbilical", "/root")):
        told = umbilical("agent", "install", "--systemd", *AGENT, "--program", program)
        assert told.err.startswith(f"note: {program} is below {folder}, which the unit does not see: ")
    assert umbilical("agent", "install", "--systemd", *AGENT, *PROGRAM).err == ""


def test_a_static_pod_is_written_with_the_image_and_what_is_next(umbilical: Run, tmp_path: Path) -> None:
    folder = tmp_path / "manifests"
    told = umbilical("server", "install", "--static-pod", "--image=registry.example/u:1", *UNIX, "--out", folder)
    assert [line.split()[::2] for line in told.lines] == [["0600", "umbilical-server.yaml"]]
    assert told.err.splitlines() == [
        "next, as root on the machine that runs the pod:",
        f"  cp {folder}/umbilical-server.yaml /etc/kubernetes/manifests/",
    ]
    manifest = yaml.safe_load((folder / "umbilical-server.yaml").read_text())
    assert [one["image"] for one in manifest["spec"]["containers"]] == ["registry.example/u:1"]
    assert manifest["spec"]["terminationGracePeriodSeconds"] == 60
    again = umbilical("server", "install", "--static-pod", *UNIX, "--out", folder, status=3)
    assert again.err.startswith("UMB801 ")


def test_the_recipe_for_kubeadm_names_the_same_files_everywhere(umbilical: Run, repository: Path) -> None:
    page = sections(repository / "docs" / "recipes" / "kubeadm.md")
    script = page["The server"].commands[0].replace("\\\n", " ")
    (words,) = (shlex.split(line) for line in script.splitlines() if "server install" in line)
    words[words.index("--out") + 1] = "-"
    (container,) = yaml.safe_load(umbilical(*words[1:]).out)["spec"]["containers"]
    mounted = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert mounted == ["/run/umbilical", "/etc/kubernetes/umbilical", "/tmp"]

    files = page["kube-apiserver"].files
    (path, egress), (_, config) = ((name, yaml.safe_load(text)) for name, text in files.items())
    tunnel = egress["egressSelections"][0]["connection"]
    assert f"--listen=unix:{tunnel['transport']['uds']['udsName']}" in container["args"]
    assert f"--mode={tunnel['proxyProtocol'].lower()}" in container["args"]
    given = config["apiServer"]
    assert given["extraArgs"] == [{"name": "egress-selector-config-file", "value": path}]
    assert [volume["hostPath"] for volume in given["extraVolumes"]] == [path, mounted[0]]

    (patch,) = (yaml.safe_load(text) for name, text in page["One node only"].files.items() if "+json" in name)
    flag, *others = (operation["value"] for operation in patch)
    assert flag == f"--egress-selector-config-file={path}"
    volumes = [
        {"name": one["name"], "hostPath": {"path": one["hostPath"], "type": one["pathType"]}}
        for one in given["extraVolumes"]
    ]
    mounts = [{name: one[name] for name in ("name", "mountPath", "readOnly")} for one in given["extraVolumes"]]
    assert others == [*mounts, *volumes]
