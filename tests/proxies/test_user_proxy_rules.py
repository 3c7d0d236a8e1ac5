"""The user's proxies from values and files, which may change while the proxy runs."""

from pathlib import Path
from typing import Any

import pytest

from umbilical.dialer.settings import DialerSettings
from umbilical.proxies.proxy_connect import ProxyUrl
from umbilical.proxies.settings import HttpsSettings, ListenerSettings, OutboundSettings
from umbilical.proxies.user_proxy_rules import LOOK_SECONDS, UserProxyRules, read_rules
from umbilical.tunnel.errors import StartupError


def settings(**values: Any) -> HttpsSettings:
    return HttpsSettings(ListenerSettings(()), OutboundSettings(DialerSettings(())), **values)


def test_each_scheme_has_its_own_proxy() -> None:
    rules = read_rules(settings(http_proxy="http://p1:3128", https_proxy="https://u:p%40ss%3Aw@p2"))
    assert rules.proxy_for("http", "a", 80) == ProxyUrl("http", "p1", 3128)
    assert rules.proxy_for("https", "a", 443) == ProxyUrl("https", "p2", 443, "u", "p@ss:w")


def test_credentials_of_a_file_are_for_urls_that_have_none(tmp_path: Path) -> None:
    login = tmp_path / "login"
    login.write_text("user:p@ss:word%41\n")
    rules = read_rules(settings(http_proxy="http://p1", https_proxy="http://me:mine@p2", proxy_credentials=login))
    assert rules.proxy_for("http", "a", 80) == ProxyUrl("http", "p1", 80, "user", "p@ss:word%41")
    assert rules.proxy_for("https", "a", 443) == ProxyUrl("http", "p2", 80, "me", "mine")


@pytest.mark.parametrize("content", [b"only-a-password", b"", b":x", b"a:b\nc:d\n", b"\xff:x"])
def test_a_file_that_cannot_be_used_keeps_it_from_starting_and_is_not_shown(tmp_path: Path, content: bytes) -> None:
    login = tmp_path / "login"
    login.write_bytes(content)
    with pytest.raises(StartupError) as fault:
        UserProxyRules(settings(http_proxy="http://p", proxy_credentials=login))
    assert fault.value.code == "UMB548"
    assert "only-a-password" not in str(fault.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="no-such-file"):
        UserProxyRules(settings(http_proxy_file=tmp_path / "no-such-file"))


def test_an_empty_file_is_no_proxy(tmp_path: Path) -> None:
    url = tmp_path / "HTTP_PROXY"
    url.write_text("\n")
    assert read_rules(settings(http_proxy_file=url)).proxy_for("http", "a", 80) is None


def test_a_changed_file_counts_and_a_broken_one_does_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    url, now = tmp_path / "HTTPS_PROXY", 100.0
    url.write_text("http://u:old@p1:1\n")
    watched = UserProxyRules(settings(https_proxy_file=url), lambda: now)

    def host() -> str:
        proxy = watched.rules().proxy_for("https", "a", 443)
        assert proxy is not None
        return proxy.host

    assert host() == "p1"
    url.write_text("http://u:secret@p2.example:1\n")
    assert host() == "p1"  # nobody has looked yet
    now += LOOK_SECONDS
    with caplog.at_level("INFO"):
        assert host() == "p2.example"
        url.write_text("socks5://u:secret@p3-is-longer\n")
        now += LOOK_SECONDS
        assert host() == "p2.example"
    assert "http://p2.example:1" in caplog.text
    assert "UMB532" in caplog.text
    assert "secret" not in caplog.text
