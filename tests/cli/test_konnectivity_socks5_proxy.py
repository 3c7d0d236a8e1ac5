"""`konnectivity-socks5-proxy`: HyperShift's command line, and a process that starts small and early."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from tests.support.tunnel_pair import free_port, http_get, wait_until

from umbilical.cli import klog
from umbilical.cli.konnectivity_socks5_proxy import FLAGS, run, socks5_settings
from umbilical.cli.option_checks import OptionRefused
from umbilical.cli.pflag import FlagSet
from umbilical.proxies.settings import Resolution, Socks5Settings

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


@pytest.mark.parametrize(
    ("arguments", "resolution"),
    [
        ((), Resolution.SERVICE),
        ((GUEST,), Resolution.SERVICE),
        ((MANAGEMENT,), Resolution.SERVICE),
        ((GUEST, MANAGEMENT), Resolution.GUEST_THEN_MANAGEMENT),
        (("--disable-resolver",), Resolution.AGENT),
        (("--disable-resolver", GUEST, MANAGEMENT), Resolution.AGENT),
        (("--disable-resolver=false", GUEST), Resolution.SERVICE),
    ],
)
def test_four_booleans_become_one_word(arguments: tuple[str, ...], resolution: Resolution) -> None:
    found = settings("run", *arguments).outbound
    assert found.resolution is resolution
    assert found.kubeconfig == (None if resolution is Resolution.AGENT else Path("/etc/kubeconfig"))


def test_no_kubeconfig_is_needed_when_nothing_is_resolved_by_it() -> None:
    assert settings("--disable-resolver", environment={}).outbound.kubeconfig is None
    with pytest.raises(OptionRefused, match="KUBECONFIG"):
        settings(environment={})


def test_other_flags_reach_the_settings() -> None:
    found = settings("run", "--prefer-ipv4", "--connect-directly-to-cloud-apis", "--serving-port=8092")
    assert found.outbound.prefer_ipv4
    assert ".amazonaws.com" in found.outbound.direct_suffixes
    assert {address.port for address in found.listener.listen} == {8092}
    assert found.credentials is None


def test_an_unknown_flag_is_told_as_pflag_tells_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "--no-such-flag"]) == 1
    assert "unknown flag: --no-such-flag" in capsys.readouterr().err


def test_it_starts_with_the_standard_library_alone() -> None:
    """A sidecar per pod: what is loaded at the start is what each of them weighs."""
    modules = (
        "umbilical.cli.konnectivity_socks5_proxy, umbilical.tunnel.event_loop, umbilical.proxies.socks5_process, "
        "umbilical.dialer.dialer, umbilical.proxies.outbound"
    )
    foreign = _loaded(modules) - _loaded("sys") - sys.stdlib_module_names - {"umbilical"}
    assert not foreign
    assert _loaded(modules) & {"json", "argparse", "platform", "email", "uuid", "tempfile"} == set()


def _loaded(modules: str) -> set[str]:
    script = f"import sys, {modules}; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.split())


def test_it_lives_and_listens_before_files_and_server_exist(tmp_path: Path) -> None:
    """HyperShift's would have crashed: no kubeconfig, no certificates, no server."""
    port, health = free_port(), free_port()
    arguments = (
        *("run", "--disable-resolver", f"--serving-port={port}", f"--health-port={health}"),
        *("--konnectivity-hostname=127.0.0.1", f"--konnectivity-port={free_port()}"),
        *(f"--ca-cert-path={tmp_path}/ca", f"--tls-cert-path={tmp_path}/crt", f"--tls-key-path={tmp_path}/key"),
    )
    environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([PROGRAM, *arguments], stdout=log, stderr=log, env=environment)
    try:
        wait_until(lambda: http_get(f"http://127.0.0.1:{health}/livez")[0] == 200, "the proxy lives")
        status, text = http_get(f"http://127.0.0.1:{health}/readyz")
        assert status == 503
        assert str(tmp_path) in text
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait(60)
    told = (tmp_path / "log").read_text()
    assert told.count("UMB022 waiting") == 1
    assert f"127.0.0.1:{port}" in told
