"""The agent's flags and upstream's rules about them."""

from pathlib import Path

import pytest

from umbilical.cli import klog
from umbilical.cli.agent_flags import agent_flags, check_agent_flags
from umbilical.cli.option_checks import OptionRefused
from umbilical.cli.pflag import FlagError, FlagSet


def flags(*arguments: str) -> FlagSet:
    parsed = FlagSet("agent", agent_flags(), klog.FLAGS)
    parsed.parse(arguments)
    return parsed


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--agent-identifiers=host=a&host=b&ipv4=1.2.3.4&ipv6=::1&cidr=10.0.0.0/8&default-route=true",),
        ("--server-count-source=",),
        ("--server-count-source=max",),
        ("--health-server-port=60000", "--admin-server-port=1"),
        ("--sync-interval=10s", "--sync-interval-cap=10s"),
        ("--alpn-proto=[]", "--lease-label=k8s-app=konnectivity-server", "--agent-cert=", "--keepalive-time=1h0m0s"),
        ("--count-server-leases", "--lease-label-selector="),
    ],
)
def test_these_options_are_served(arguments: tuple[str, ...]) -> None:
    check_agent_flags(flags(*arguments))


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("--agent-key=/no",), "error checking agent key /no, got stat /no: no such file or directory"),
        (("--ca-cert=/no",), "error checking agent CA cert /no, got stat /no: no such file or directory"),
        (("--proxy-server-port=0",), "proxy server port 0 must be greater than 0"),
        (("--health-server-port=0",), "health server port 0 must be greater than 0"),
        (("--admin-server-port=-1",), "admin server port -1 must be greater than 0"),
        (("--xfr-channel-size=-1",), "channel size -1 must be greater than 0"),
        (
            ("--enable-contention-profiling",),
            "if --enable-contention-profiling is set, --enable-profiling must also be set",
        ),
        (("--sync-interval=20s",), "sync interval 20s must be less than sync interval cap 10s"),
        (
            ("--service-account-token-path=/no",),
            "error checking service account token path /no, got stat /no: no such file or directory",
        ),
        (("--agent-identifiers=uid=1",), "agent address is invalid: unknown address type: uid"),
        (("--agent-identifiers=a;b",), "agent address is invalid: invalid semicolon separator in query"),
        (("--kubeconfig=/no",), 'error checking KubeconfigPath "/no", got stat /no: no such file or directory'),
        (("--server-count-source=x",), "--server-count-source must be one of '', 'default', 'max', got x"),
        (("--drain-linger=-1s",), "drain-linger must be >= 0, got -1s"),
    ],
)
def test_a_broken_rule_is_told_in_the_words_of_upstream(arguments: tuple[str, ...], fault: str) -> None:
    with pytest.raises(OptionRefused) as refusal:
        check_agent_flags(flags(*arguments))
    assert str(refusal.value) == fault


def test_a_certificate_needs_its_key(tmp_path: Path) -> None:
    with pytest.raises(OptionRefused, match=r"^cannot have agent key empty when agent cert is set to "):
        check_agent_flags(flags(f"--agent-cert={tmp_path}"))


@pytest.mark.parametrize("name", ["lease-label-selector", "lease-label"])
def test_both_names_of_the_lease_selector_set_the_same_and_refuse_nonsense(name: str) -> None:
    assert flags(f"--{name}=a in (b,c)").text("lease-label-selector") == "a in (b,c)"
    with pytest.raises(FlagError, match=rf'^invalid argument "\*x\*" for "--{name}" flag: '):
        flags(f"--{name}=*x*")


def test_the_environment_names_the_agent_and_a_flag_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXY_AGENT_ID", "from-environment")
    assert flags().text("agent-id") == "from-environment"
    assert flags("--agent-id=from-flag").text("agent-id") == "from-flag"
