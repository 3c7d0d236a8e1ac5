"""`konnectivity-https-proxy`: HyperShift's command line, a process that starts small, and no password in its log."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from tests.support.tunnel_pair import free_port, http_get, wait_until

from umbilical.cli import klog
from umbilical.cli.konnectivity_https_proxy import FLAGS, check_flags, https_settings, run
from umbilical.cli.option_checks import OptionRefused
from umbilical.cli.pflag import FlagSet
from umbilical.proxies.settings import HttpsSettings, Resolution
from umbilical.tunnel.settings import ListenAddress

PROGRAM: Final = str(Path(sys.executable).parent / "konnectivity-https-proxy")
HYPERSHIFTS: Final = {
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
HOSTED: Final = {"KUBECONFIG": "/etc/kubeconfig"}


def parsed(*arguments: str) -> FlagSet:
    flags = FlagSet("konnectivity-https-proxy", FLAGS, klog.FLAGS)
    flags.parse(arguments)
    return flags


def settings(*arguments: str, environment: Mapping[str, str] = HOSTED) -> HttpsSettings:
    return https_settings(parsed(*arguments), environment)


def test_all_eleven_flags_are_there_with_hypershifts_defaults() -> None:
    given = {flag.name: flag.default for flag in FLAGS}
    assert set(given) == set(HYPERSHIFTS) | OURS
    assert {name: given[name] for name in HYPERSHIFTS} == HYPERSHIFTS


def test_it_listens_on_loopback_and_asks_services_first_and_takes_port_80_as_hypershifts_does() -> None:
    found = settings("run")
    assert found.listener.listen == (ListenAddress("127.0.0.1", 8090), ListenAddress("::1", 8090))
    assert (found.outbound.resolution, found.outbound.kubeconfig) == (Resolution.SERVICE, Path("/etc/kubeconfig"))
    assert found.default_connect_port == 80


def test_no_kubeconfig_is_needed_when_nothing_is_resolved_by_it() -> None:
    found = settings("--disable-resolver", environment={})
    assert (found.outbound.resolution, found.outbound.kubeconfig) == (Resolution.AGENT, None)
    with pytest.raises(OptionRefused, match="KUBECONFIG"):
        settings(environment={})


def test_the_users_proxy_comes_by_flag_by_file_or_by_environment() -> None:
    found = settings("--http-proxy=http://u:p@p1", "--https-proxy=p2:3128", "--no-proxy=.svc")
    assert (found.http_proxy, found.https_proxy, found.no_proxy) == ("http://u:p@p1", "p2:3128", ".svc")
    found = settings("--http-proxy-file=/p/HTTP_PROXY", "--https-proxy-file=/p/HTTPS_PROXY", "--proxy-ca-path=/p/ca")
    assert (found.http_proxy_file, found.https_proxy_file) == (Path("/p/HTTP_PROXY"), Path("/p/HTTPS_PROXY"))
    assert found.proxy_authority == Path("/p/ca")
    names = ("KONNECTIVITY_HTTP_PROXY", "KONNECTIVITY_HTTPS_PROXY", "KONNECTIVITY_NO_PROXY")
    found = settings("--http-proxy=http://flag", environment=HOSTED | {name: f"http://{name}" for name in names})
    assert found.http_proxy == "http://flag"
    assert (found.https_proxy, found.no_proxy) == ("http://KONNECTIVITY_HTTPS_PROXY", "http://KONNECTIVITY_NO_PROXY")


def test_this_machines_own_proxy_is_not_the_users() -> None:
    found = settings(environment=HOSTED | {"HTTP_PROXY": "http://m", "HTTPS_PROXY": "http://m", "NO_PROXY": "*"})
    assert (found.http_proxy, found.https_proxy, found.no_proxy) == ("", "", "")


def test_a_proxy_given_twice_is_refused() -> None:
    with pytest.raises(OptionRefused, match="twice"):
        check_flags(parsed("--http-proxy=http://p", "--http-proxy-file=/p"))


def test_an_unknown_flag_is_told_as_pflag_tells_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "--no-such-flag"]) == 1
    assert "unknown flag: --no-such-flag" in capsys.readouterr().err


def test_it_starts_with_the_standard_library_alone() -> None:
    """A sidecar per pod: what is loaded at the start is what each of them weighs."""
    modules = (
        "umbilical.cli.konnectivity_https_proxy, umbilical.tunnel.event_loop, umbilical.proxies.https_process, "
        "umbilical.dialer.dialer, umbilical.proxies.outbound"
    )
    foreign = _loaded(modules) - _loaded("sys") - sys.stdlib_module_names - {"umbilical"}
    assert not foreign
    assert _loaded(modules) & {"json", "argparse", "platform", "email", "uuid", "tempfile"} == set()


def _loaded(modules: str) -> set[str]:
    script = f"import sys, {modules}; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.split())


def test_it_answers_before_files_and_server_exist_and_its_log_has_no_password(tmp_path: Path) -> None:
    """HyperShift's would have crashed: no kubeconfig, no certificates, no server."""
    port, health = free_port(), free_port()
    arguments = (
        *("run", "-v=9", "--disable-resolver", f"--serving-port={port}", f"--health-port={health}"),
        *("--konnectivity-hostname=127.0.0.1", f"--konnectivity-port={free_port()}"),
        *(f"--ca-cert-path={tmp_path}/ca", f"--tls-cert-path={tmp_path}/crt", f"--tls-key-path={tmp_path}/key"),
        *("--http-proxy=http://user:s3cret@proxy:3128", "--https-proxy=https://user:s3cret@proxy"),
    )
    environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([PROGRAM, *arguments], stdout=log, stderr=log, env=environment)
    try:
        wait_until(lambda: http_get(f"http://127.0.0.1:{health}/livez")[0] == 200, "the proxy lives")
        assert http_get(f"http://127.0.0.1:{health}/readyz")[0] == 503
        with socket.create_connection(("127.0.0.1", port), 60) as client:
            client.sendall(b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n")
            with client.makefile("rb") as answer:
                told = answer.read().decode()
        assert told.startswith("HTTP/1.1 50")
        assert str(tmp_path) in told
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait(60)
    log_text = (tmp_path / "log").read_text()
    assert "--https-proxy set to" in log_text
    assert "s3cret" not in log_text + told
