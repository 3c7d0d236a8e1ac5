"""The SOCKS5 proxy as a process."""

from umbilical.dialer.opener import Opener
from umbilical.proxies.credentials import Credentials
from umbilical.proxies.metrics import ProxyMetrics
from umbilical.proxies.process import MakeTunnel, run_proxy, tunnel_of
from umbilical.proxies.settings import Socks5Settings
from umbilical.proxies.socks5 import Socks5


async def run_socks5(settings: Socks5Settings, make_tunnel: MakeTunnel | None = None) -> int:
    """Serve until a signal; the exit code. Raises StartupError, with nothing left open."""
    credentials = None if settings.credentials is None else Credentials(settings.credentials)

    def make_service(opener: Opener, metrics: ProxyMetrics) -> Socks5:
        return Socks5(settings.listener, opener, metrics, credentials)

    return await run_proxy(settings.listener, make_tunnel or tunnel_of(settings.outbound), make_service, "SOCKS5")
