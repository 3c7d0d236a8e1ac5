"""Settings of proxies."""

from umbilical.dialer.settings import DialerSettings
from umbilical.proxies.settings import HttpsSettings, ListenerSettings, OutboundSettings


def test_settings_of_the_http_proxy_show_no_url_that_may_hold_a_password() -> None:
    settings = HttpsSettings(
        ListenerSettings(()),
        OutboundSettings(DialerSettings(())),
        http_proxy="http://user:s3cret@proxy",
        https_proxy="http://user:s3cret@proxy",
    )
    assert "ListenerSettings" in repr(settings)
    assert "s3cret" not in repr(settings)
