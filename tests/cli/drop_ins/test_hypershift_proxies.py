"""The programs under the names of HyperShift: its command lines, and processes that start small and early."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from tests.support.commands import modules_loaded
from tests.support.fixture_types import Captured
from tests.support.tunnel_pair import free_port, http_get, wait_until

from umbilical.cli.drop_ins import klog
from umbilical.cli.drop_ins.drop_in import OptionRefused
from umbilical.cli.drop_ins.konnectivity_https_proxy import FLAGS as HTTPS_FLAGS
from umbilical.cli.drop_ins.konnectivity_https_proxy import check_flags, https_settings
from umbilical.cli.drop_ins.konnectivity_https_proxy import run as run_https
from umbilical.cli.drop_ins.konnectivity_socks5_proxy import FLAGS, run, socks5_settings
from umbilical.cli.drop_ins.pflag import FlagError, FlagSet
from umbilical.cli.drop_ins.proxy_flags import check_shared_flags, hosted_kubeconfig
from umbilical.dialer.settings import DialerSettings, Protocol, TcpServer
from umbilical.proxies.direct import CLOUD_SUFFIXES
from umbilical.proxies.settings import HttpsSettings, ListenerSettings, Resolution, Socks5Settings
from umbilical.tunnel.settings import ListenAddress, TlsFiles


def flags(*arguments: str) -> FlagSet:
    parsed = FlagSet("test", FLAGS)
    parsed.parse(arguments)
    return parsed


def test_loopback_is_the_default_and_every_interface_an_option() -> None:
    both = (ListenAddress("127.0.0.1", 8090), ListenAddress("::1", 8090))
    assert settings().listener == ListenerSettings(both, ipv6_if_there=True)
    found = settings("--bind-address=::", "--serving-port=8092", "--health-port=9000").listener
    assert found.listen == (ListenAddress("::", 8092),)
    assert not found.ipv6_if_there
    assert found.health == ListenAddress("", 9000)
    assert settings().outbound.direct_suffixes == ()
    assert settings("--connect-directly-to-cloud-apis").outbound.direct_suffixes == CLOUD_SUFFIXES
    assert hosted_kubeconfig({}) is None
    assert hosted_kubeconfig({"KUBECONFIG": ""}) is None
    assert hosted_kubeconfig({"KUBECONFIG": "/a:/b"}) == Path("/a")


def test_the_server_is_known_by_its_host_and_shown_our_certificate() -> None:
    found = settings(
        *("--konnectivity-hostname=k", "--konnectivity-port=9", "--ca-cert-path=/c", "--tls-key-path=/k")
    ).outbound.dialer
    files = TlsFiles(Path("/etc/konnectivity/proxy-client/tls.crt"), Path("/k"), Path("/c"))
    assert found == DialerSettings((TcpServer("k", 9),), files, Protocol.HTTP_CONNECT)


def test_what_cannot_work_is_refused() -> None:
    for argument in (
        *("--konnectivity-port=0", "--serving-port=65536", "--health-port=70000", "--konnectivity-hostname="),
        *("--ca-cert-path=", "--bind-address="),
    ):
        with pytest.raises(OptionRefused):
            check_shared_flags(flags(argument))
    for value in ("-1", "4294967296", "x"):
        with pytest.raises(FlagError, match="invalid argument"):
            flags(f"--serving-port={value}")
    with pytest.raises(OptionRefused, match="cannot be combined"):
        check_flags(parsed("--http-proxy=http://p", "--http-proxy-file=/p"))


PROGRAM: Final = str(Path(sys.executable).parent / "konnectivity-socks5-proxy")
HYPERSHIFTS: Final = {
    *("konnectivity-hostname", "konnectivity-port", "serving-port", "connect-directly-to-cloud-apis"),
    *("resolve-from-guest-cluster-dns", "resolve-from-management-cluster-dns", "disable-resolver", "prefer-ipv4"),
    *("ca-cert-path", "tls-cert-path", "tls-key-path"),
}
HOSTED: Final = {"KUBECONFIG": "/etc/kubeconfig"}
GUEST, MANAGEMENT = "--resolve-from-guest-cluster-dns", "--resolve-from-management-cluster-dns"


def settings(*arguments: str, environment: Mapping[str, str] = HOSTED) -> Socks5Settings:
    parsed = FlagSet("konnectivity-socks5-proxy", FLAGS, klog.FLAGS)
    parsed.parse(arguments)
    return socks5_settings(parsed, environment)


def test_all_eleven_flags_are_there_and_off_where_they_are_switches() -> None:
    given = {flag.name: flag.default for flag in FLAGS}
    assert set(given) - {"bind-address", "health-port"} == HYPERSHIFTS
    assert not any(given[name] for name in given if "resolve" in name)


def test_four_booleans_become_one_value() -> None:
    for arguments, resolution in (
        ((), Resolution.SERVICE),
        ((GUEST,), Resolution.SERVICE),
        ((MANAGEMENT,), Resolution.SERVICE),
        ((GUEST, MANAGEMENT), Resolution.HOSTED_THEN_MANAGEMENT),
        (("--disable-resolver",), Resolution.AGENT),
        (("--disable-resolver", GUEST, MANAGEMENT), Resolution.AGENT),
        (("--disable-resolver=false", GUEST), Resolution.SERVICE),
    ):
        found = settings("run", *arguments).outbound
        assert found.resolution is resolution
        assert found.kubeconfig == (None if resolution is Resolution.AGENT else Path("/etc/kubeconfig"))


def test_no_kubeconfig_is_needed_when_nothing_is_resolved_by_it() -> None:
    for proxy in (settings, https):
        assert proxy("--disable-resolver", environment={}).outbound.kubeconfig is None
        with pytest.raises(OptionRefused, match="KUBECONFIG"):
            proxy(environment={})


def test_other_flags_reach_the_settings() -> None:
    found = settings("run", "--prefer-ipv4")
    assert found.outbound.prefer_ipv4
    assert found.credentials is None


def test_an_unknown_flag_is_reported_as_by_pflag(capsys: Captured) -> None:
    for program in (run, run_https):
        assert program(["run", "--no-such-flag"]) == 1
        assert "unknown flag: --no-such-flag" in capsys.readouterr().err


@pytest.mark.parametrize(("proxy", "engine"), [("socks5", "socks5"), ("https", "https_process")])
def test_it_starts_with_the_standard_library_alone(proxy: str, engine: str) -> None:
    """A sidecar per pod: what is loaded at the start is what each of them weighs."""
    modules = (
        f"umbilical.cli.drop_ins.konnectivity_{proxy}_proxy, umbilical.proxies.{engine}, "
        "umbilical.tunnel.event_loop, umbilical.dialer.dialer, umbilical.proxies.outbound"
    )
    loaded = _packages(f"import {modules}")
    assert loaded - _packages("") - sys.stdlib_module_names - {"umbilical"} == set()
    assert loaded & {"json", "argparse", "platform", "email", "uuid", "tempfile"} == set()


def _packages(script: str) -> set[str]:
    return {name.partition(".")[0] for name in modules_loaded(script)}


@contextmanager
def _living(program: str, folder: Path, *more: str) -> Iterator[tuple[int, int]]:
    """Run a proxy without kubeconfig, files and server, and stop it."""
    port, health = free_port(), free_port()
    arguments = (
        *("run", "--disable-resolver", f"--serving-port={port}", f"--health-port={health}"),
        *("--konnectivity-hostname=127.0.0.1", f"--konnectivity-port={free_port()}"),
        *(f"--ca-cert-path={folder}/ca", f"--tls-cert-path={folder}/crt", f"--tls-key-path={folder}/key"),
    )
    environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, *arguments, *more], stdout=log, stderr=log, env=environment)
    try:
        wait_until(lambda: http_get(f"http://127.0.0.1:{health}/livez")[0] == 200, "the proxy lives")
        yield port, health
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait(60)


def test_it_lives_and_listens_before_files_and_server_exist(tmp_path: Path) -> None:
    """HyperShift's would have crashed: no kubeconfig, no certificates, no server."""
    with _living(PROGRAM, tmp_path) as (port, health):
        status, text = http_get(f"http://127.0.0.1:{health}/readyz")
        assert status == 503
        assert str(tmp_path) in text
    told = (tmp_path / "log").read_text()
    assert told.count("UMB022 waiting") == 1
    assert f"127.0.0.1:{port}" in told


HTTPS_PROGRAM: Final = str(Path(sys.executable).parent / "konnectivity-https-proxy")
HTTPS_HYPERSHIFTS: Final = {
    "konnectivity-hostname": "konnectivity-server-local",
    "konnectivity-port": 8090,
    "serving-port": 8090,
    "ca-cert-path": "/etc/konnectivity/proxy-ca/ca.crt",
    "tls-cert-path": "/etc/konnectivity/proxy-client/tls.crt",
    "tls-key-path": "/etc/konnectivity/proxy-client/tls.key",
    "http-proxy": "",
    "https-proxy": "",
    "no-proxy": "",
    "connect-directly-to-cloud-apis": False,
    "prefer-ipv4": False,
}
OURS: Final = {
    *("bind-address", "health-port", "disable-resolver", "http-proxy-file", "https-proxy-file", "proxy-ca-path")
}


def parsed(*arguments: str) -> FlagSet:
    flags = FlagSet("konnectivity-https-proxy", HTTPS_FLAGS, klog.FLAGS)
    flags.parse(arguments)
    return flags


def https(*arguments: str, environment: Mapping[str, str] = HOSTED) -> HttpsSettings:
    return https_settings(parsed(*arguments), environment)


def test_all_eleven_flags_are_there_with_hypershifts_defaults() -> None:
    given = {flag.name: flag.default for flag in HTTPS_FLAGS}
    assert set(given) == set(HTTPS_HYPERSHIFTS) | OURS
    assert {name: given[name] for name in HTTPS_HYPERSHIFTS} == HTTPS_HYPERSHIFTS
    shared = {flag.name: flag.default for flag in FLAGS if flag.name in HTTPS_HYPERSHIFTS}
    assert shared == {name: given[name] for name in shared}, "and so are those of both proxies"
    assert (given["bind-address"], given["health-port"]) == (("127.0.0.1", "::1"), 0)


def test_it_listens_on_loopback_and_asks_services_first_and_takes_port_80_as_hypershifts_does() -> None:
    found = https("run")
    assert found.listener.listen == (ListenAddress("127.0.0.1", 8090), ListenAddress("::1", 8090))
    assert (found.outbound.resolution, found.outbound.kubeconfig) == (Resolution.SERVICE, Path("/etc/kubeconfig"))
    assert found.default_connect_port == 80


def test_the_users_proxy_comes_by_flag_by_file_or_by_environment() -> None:
    found = https("--http-proxy=http://u:p@p1", "--https-proxy=p2:3128", "--no-proxy=.svc")
    assert (found.http_proxy, found.https_proxy, found.no_proxy) == ("http://u:p@p1", "p2:3128", ".svc")
    found = https("--http-proxy-file=/p/HTTP_PROXY", "--https-proxy-file=/p/HTTPS_PROXY", "--proxy-ca-path=/p/ca")
    assert (found.http_proxy_file, found.https_proxy_file) == (Path("/p/HTTP_PROXY"), Path("/p/HTTPS_PROXY"))
    assert found.proxy_authority == Path("/p/ca")
    names = ("KONNECTIVITY_HTTP_PROXY", "KONNECTIVITY_HTTPS_PROXY", "KONNECTIVITY_NO_PROXY")
    found = https("--http-proxy=http://flag", environment=HOSTED | {name: f"http://{name}" for name in names})
    assert found.http_proxy == "http://flag"
    assert (found.https_proxy, found.no_proxy) == ("http://KONNECTIVITY_HTTPS_PROXY", "http://KONNECTIVITY_NO_PROXY")


def test_this_machines_own_proxy_is_not_the_users() -> None:
    found = https(environment=HOSTED | {"HTTP_PROXY": "http://m", "HTTPS_PROXY": "http://m", "NO_PROXY": "*"})
    assert (found.http_proxy, found.https_proxy, found.no_proxy) == ("", "", "")


def test_it_answers_before_files_and_server_exist_and_its_log_has_no_password(tmp_path: Path) -> None:
    """HyperShift's would have crashed: no kubeconfig, no certificates, no server."""
    proxies = ("--http-proxy=http://user:s3cret@proxy:3128", "--https-proxy=https://user:s3cret@proxy")
    with _living(HTTPS_PROGRAM, tmp_path, "-v=9", *proxies) as (port, health):
        assert http_get(f"http://127.0.0.1:{health}/readyz")[0] == 503
        with socket.create_connection(("127.0.0.1", port), 60) as client:
            client.sendall(b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n")
            with client.makefile("rb") as answer:
                told = answer.read().decode()
        assert told.startswith("HTTP/1.1 50")
        assert str(tmp_path) in told
    log_text = (tmp_path / "log").read_text()
    assert "--https-proxy set to" in log_text
    assert "s3cret" not in log_text + told
