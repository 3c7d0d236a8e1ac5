"""Which proxy a dial takes, by the environment."""

import logging

import pytest

from umbilical.proxies.environment_proxy import ProxyRules, rules_of_environment
from umbilical.proxies.proxy_connect import ProxyUrl
from umbilical.tunnel.errors import StartupError


def chosen(environment: dict[str, str], host: str = "ec2.amazonaws.com", port: int = 443) -> str:
    return str(rules_of_environment(environment).proxy_for("https", host, port) or "")


@pytest.mark.parametrize(
    ("environment", "proxy"),
    [
        ({}, ""),
        ({"HTTPS_PROXY": "http://up.example:3128"}, "http://up.example:3128"),
        ({"https_proxy": "http://low.example:3128"}, "http://low.example:3128"),
        ({"HTTPS_PROXY": "http://up.example:1", "https_proxy": "http://low.example:2"}, "http://up.example:1"),
        ({"HTTPS_PROXY": "", "https_proxy": "http://low.example:2"}, "http://low.example:2"),
        ({"HTTP_PROXY": "http://plain.example:3128"}, ""),
        ({"HTTPS_PROXY": "proxy.example:3128"}, "http://proxy.example:3128"),
        ({"HTTPS_PROXY": "https://proxy.example"}, "https://proxy.example:443"),
    ],
)
def test_upper_case_goes_before_lower_case_and_a_scheme_may_be_missing(environment: dict[str, str], proxy: str) -> None:
    assert chosen(environment) == proxy


@pytest.mark.parametrize("name", ["NO_PROXY", "no_proxy"])
def test_no_proxy_is_honoured_in_both_spellings(name: str) -> None:
    environment = {"HTTPS_PROXY": "http://up.example:3128", name: ".amazonaws.com"}
    assert chosen(environment) == ""
    assert chosen(environment, "login.microsoftonline.com") == "http://up.example:3128"


def test_this_machine_is_never_reached_by_a_proxy() -> None:
    environment = {"HTTPS_PROXY": "http://up.example:3128"}
    assert chosen(environment, "localhost") == chosen(environment, "127.0.0.1") == chosen(environment, "::1") == ""


def test_a_value_that_is_no_url_means_no_proxy_and_is_told_without_being_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert chosen({"HTTPS_PROXY": "http://me:s3cret@proxy.example:port"}) == ""
    assert "HTTPS_PROXY cannot be read" in caplog.text
    assert "s3cret" not in caplog.text


def test_a_proxy_of_another_kind_is_refused_at_the_start() -> None:
    with pytest.raises(StartupError) as caught:
        chosen({"https_proxy": "socks5://me:s3cret@proxy.example:1080"})
    assert caught.value.code == "UMB532"
    assert "s3cret" not in f"{caught.value} {caught.value.next}"


def test_each_scheme_has_its_own_proxy_and_both_have_the_same_exceptions() -> None:
    rules = ProxyRules(ProxyUrl("http", "a", 80), ProxyUrl("http", "b", 80), "foo.com:443")
    assert [str(rules.proxy_for(scheme, "bar.com", 443)) for scheme in ("http", "https")] == [
        "http://a:80",
        "http://b:80",
    ]
    assert rules.proxy_for("https", "foo.com", 443) is None
    assert rules.proxy_for("http", "foo.com", 80) is not None
    assert rules.proxy_for("ftp", "foo.com", 21) is None
    assert [proxy.host for proxy in rules.proxies] == ["a", "b"]
