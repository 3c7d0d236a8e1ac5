"""`umbilical firewall check`, on loopback and in namespaces of the test's own."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import tls_listener
from tests.support.tls_contexts import server_context
from tests.support.tls_listener import listener
from tests.support.tunnel_pki import TunnelPki, make_tunnel_pki

from umbilical.cli import main
from umbilical.cli.firewall_check import target
from umbilical.host.netns import Namespace, Network, isolated_resolver
from umbilical.host.processes import start


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> TunnelPki:
    return make_tunnel_pki(tmp_path_factory.mktemp("pki"), ("127.0.0.1", "::1"))


def _run(capfd: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    status = main.run(["firewall", "check", *(str(argument) for argument in arguments)])
    told = capfd.readouterr()
    return status, told.out, told.err


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("10.0.0.9", "10.0.0.9", 8091),
        ("10.0.0.9:9191", "10.0.0.9", 9191),
        ("api-int.example:8091", "api-int.example", 8091),
        ("fd00::9", "fd00::9", 8091),
        ("[fd00::9]", "fd00::9", 8091),
        ("[fd00::9]:9191", "fd00::9", 9191),
        ("::1", "::1", 8091),
    ],
)
def test_a_place_is_read_in_all_its_spellings(text: str, host: str, port: int) -> None:
    place = target(text)
    assert (place.host, place.port) == (host, port)


@pytest.mark.parametrize("text", ["", ":8091", "[]:1", "a b", "host:", "host:x", "host:0", "host:65536", "[::1", "a/b"])
def test_what_is_no_place_is_refused(text: str) -> None:
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


def test_a_server_as_it_should_be_gives_zero(capfd: pytest.CaptureFixture[str], pki: TunnelPki) -> None:
    files = ("--ca", pki.authority.certificate_file, "--cert", pki.agent.certificate, "--key", pki.agent.key)
    with listener(tls_listener.speaks_first(server_context(pki))) as port:
        status, out, err = _run(capfd, f"127.0.0.1:{port}", *files, "-o", "json")
    value = json.loads(out)
    assert (status, err, value["kind"], value["tcp"]) == (0, "", "FirewallCheck", "open")
    assert value["summary"]["passed"] == value["summary"]["checks"] == 7
    by_id = {finding["id"]: finding for finding in value["findings"]}
    assert by_id["FW3"]["evidence"] == "127.0.0.1, ::1"


def test_a_server_that_takes_strangers_gives_one_and_names_the_hole(
    capfd: pytest.CaptureFixture[str], pki: TunnelPki
) -> None:
    with listener(tls_listener.speaks_first(server_context(pki, asks_certificate=False)), "::1") as port:
        status, out, _ = _run(capfd, f"[::1]:{port}")
    assert status == 1
    assert "CVE-2026-16242" in out


@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        (["10.0.0.9:x"], 2, "UMB001"),
        (["10.0.0.9", "--timeout", "soon"], 2, "UMB001"),
        (["10.0.0.9", "--ca", "/nonexistent/ca.crt"], 3, "UMB002"),
        (["10.0.0.9", "--cert", "/nonexistent/tls.crt"], 3, "UMB003"),
    ],
)
def test_bad_words_and_files_are_told_before_anything_is_dialled(
    arguments: list[str], status: int, code: str, capfd: pytest.CaptureFixture[str]
) -> None:
    found, out, err = _run(capfd, *arguments)
    assert (found, out, err[:6]) == (status, "", code)


def test_a_key_of_another_certificate_is_a_fault(capfd: pytest.CaptureFixture[str], pki: TunnelPki) -> None:
    status, _, err = _run(capfd, "127.0.0.1:1", "--cert", pki.agent.certificate, "--key", pki.server.key)
    assert (status, err[:6]) == (3, "UMB166")
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
