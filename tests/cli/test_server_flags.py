"""The server's flags and upstream's rules about them, one fault at a time and in its order."""

from pathlib import Path

import pytest

from umbilical.cli import klog
from umbilical.cli.option_checks import OptionRefused
from umbilical.cli.pflag import FlagSet
from umbilical.cli.server_flags import CIPHER_SUITES, TLS_VERSIONS, check_server_flags, server_flags, uses_tokens

UDS = ("--uds-name=/tmp/umbilical.sock", "--server-port=0")
TOKENS = ("--agent-namespace=n", "--agent-service-account=s", "--authentication-audience=a")


def flags(*arguments: str) -> FlagSet:
    parsed = FlagSet("proxy", server_flags(), klog.FLAGS)
    parsed.parse(arguments)
    return parsed


def refusal(*arguments: str) -> str:
    with pytest.raises(OptionRefused) as fault:
        check_server_flags(flags(*arguments))
    return str(fault.value)


@pytest.mark.parametrize(
    "arguments",
    [
        UDS,
        (*UDS, *TOKENS),
        (*UDS, "--mode=http-connect", "--proxy-strategies=destHost,defaultRoute,default"),
        (*UDS, "--tls-min-version=VersionTLS10", "--cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
        (*UDS, "--lease-label=bad"),
        (*UDS, "--enable-profiling", "--enable-contention-profiling"),
    ],
)
def test_these_options_are_served(arguments: tuple[str, ...]) -> None:
    check_server_flags(flags(*arguments))


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ((), "server ca cert must be set when in TCP mode (uds-name is empty)"),
        (("--mode=x",), "mode must be set to either 'grpc' or 'http-connect' not \"x\""),
        (("--uds-name=/x",), "server port should be set to 0 not 8090 for UDS"),
        ((*UDS, "--agent-port=50000"), "please do not try to use ephemeral port 50000 for the agent port"),
        (
            (*UDS, "--health-port=80", "--admin-port=50000"),
            "please do not try to use ephemeral port 50000 for the admin port",
        ),
        ((*UDS, "--agent-port=1023"), "please do not try to use reserved port 1023 for the agent port"),
        ((*UDS, "--admin-port=-1"), "please do not try to use reserved port -1 for the admin port"),
        ((*UDS, "--health-port=0"), "please do not try to use reserved port 0 for the health port"),
        (
            (*UDS, "--enable-contention-profiling"),
            "if --enable-contention-profiling is set, --enable-profiling must also be set",
        ),
        ((*UDS, TOKENS[1]), "--agent-namespace cannot be empty when agent authentication is enabled"),
        ((*UDS, TOKENS[0]), "--agent-service-account cannot be empty when agent authentication is enabled"),
        ((*UDS, *TOKENS[:2]), "--authentication-audience cannot be empty when agent authentication is enabled"),
        ((*UDS, "--kubeconfig=/no"), 'checking KubeconfigPath "/no", got stat /no: no such file or directory'),
        ((*UDS, "--proxy-strategies="), "ProxyStrategies cannot be empty"),
        ((*UDS, "--proxy-strategies=,"), "invalid proxy strategies: proxy strategies cannot be empty"),
        ((*UDS, "--proxy-strategies=best"), "invalid proxy strategies: unknown proxy strategy: best"),
        ((*UDS, "--xfr-channel-size=0"), "channel size 0 must be greater than 0"),
        (
            (*UDS, "--tls-min-version=1.2"),
            f'unsupported TLS version "1.2", supported values are: {", ".join(TLS_VERSIONS)}',
        ),
        (
            (*UDS, "--cipher-suites=TLS_RSA_WITH_RC4_128_SHA"),
            "cipher suite TLS_RSA_WITH_RC4_128_SHA not supported, doesn't exist or considered as insecure",
        ),
        ((*UDS, "--enable-lease-controller", "--lease-label="), "empty string provided"),
        ((*UDS, "--enable-lease-controller", "--lease-label=a"), "invalid label format: a"),
        ((*UDS, "--graceful-shutdown-timeout=-1s"), "graceful-shutdown-timeout must be >= 0, got -1s"),
        ((*UDS, "--backend-dial-timeout=-90s"), "backend-dial-timeout must be >= 0, got -1m30s"),
        (
            (*UDS, "--agent-identities=/dev/null"),
            "--agent-identities binds nothing with the strategy default; use destHost,defaultRoute",
        ),
        (
            (*UDS, "--agent-identities=/no"),
            "error checking agent identities /no, got stat /no: no such file or directory",
        ),
        (
            (*UDS, "--frontend-identities=somebody"),
            "'somebody' is no identity: one of CN=…, O=…, DNS=…, URI=…, SA=…",
        ),
        (("--server-key=/no",), "error checking server key /no, got stat /no: no such file or directory"),
        (("--server-ca-cert=/no",), "error checking server CA cert /no, got stat /no: no such file or directory"),
        (("--cluster-cert=/no",), "error checking cluster cert /no, got stat /no: no such file or directory"),
        (("--cluster-ca-cert=/no",), "error checking cluster CA cert /no, got stat /no: no such file or directory"),
    ],
)
def test_a_broken_rule_is_told_in_the_words_of_upstream(arguments: tuple[str, ...], fault: str) -> None:
    assert refusal(*arguments) == fault


def test_rules_about_files_that_are_there(tmp_path: Path) -> None:
    file = tmp_path / "pem"
    file.touch()
    assert refusal(f"--server-key={file}") == f'cannot have server cert empty when server key is set to "{file}"'
    assert refusal(f"--cluster-cert={file}") == f'cannot have cluster key empty when cluster cert is set to "{file}"'
    pair = (f"--server-key={file}", f"--server-cert={file}")
    assert refusal(*UDS, *pair) == "server key should not be set for UDS"
    assert refusal(*UDS, f"--server-ca-cert={file}") == "server ca cert should not be set for UDS"
    assert refusal(f"--server-ca-cert={file}", "--server-port=50000").startswith("please do not try to use ephemeral")
    assert refusal(f"--server-ca-cert={file}", "--server-port=80").startswith("please do not try to use reserved")
    taken = refusal(*UDS, *TOKENS, f"--cluster-ca-cert={file}")
    assert taken == "--cluster-ca-cert can not be used when agent authentication is enabled"


def test_any_token_flag_turns_token_checks_on() -> None:
    assert not uses_tokens(flags())
    assert all(uses_tokens(flags(argument)) for argument in TOKENS)


def test_the_environment_names_the_server_and_a_flag_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXY_SERVER_ID", "from-environment")
    assert flags().text("server-id") == "from-environment"
    assert flags("--server-id=from-flag").text("server-id") == "from-flag"
    monkeypatch.setenv("PROXY_SERVER_ID", "")
    assert len(flags().text("server-id")) == 36


def test_thirteen_cipher_suites_are_known() -> None:
    assert len(CIPHER_SUITES) == 13
