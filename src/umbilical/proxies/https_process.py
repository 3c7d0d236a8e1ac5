"""The HTTP proxy as a process."""

from umbilical.dialer.opener import Opener
from umbilical.proxies.direct import DirectHosts
from umbilical.proxies.environment_proxy import ProxyRules
from umbilical.proxies.https import HttpProxy
from umbilical.proxies.listener import Service
from umbilical.proxies.metrics import ProxyMetrics
from umbilical.proxies.process import MakeTunnel, run_proxy, tunnel_of
from umbilical.proxies.proxy_connect import ProxyTls
from umbilical.proxies.settings import HttpsSettings, OutboundSettings
from umbilical.proxies.user_proxy import UserProxy
from umbilical.proxies.user_proxy_rules import UserProxyRules


async def run_https(settings: HttpsSettings, make_tunnel: MakeTunnel | None = None) -> int:
    """Serve until a signal; the exit code. Raises StartupError, with nothing left open."""
    watched = UserProxyRules(settings)
    outbound = through_tunnel(settings.outbound, watched.rules())
    direct = DirectHosts(outbound.direct_suffixes, outbound.never_direct)
    tls = ProxyTls(settings.proxy_authority)

    def make_service(opener: Opener, metrics: ProxyMetrics) -> Service:
        ways = UserProxy(watched.rules, direct, opener, tls, metrics)
        proxy = HttpProxy(ways, settings.listener, metrics, default_connect_port=settings.default_connect_port)
        if settings.listen_tls.certificate is None:
            return proxy
        from umbilical.proxies.https_tls import TlsDoor

        return TlsDoor(proxy, settings.listener, settings.listen_tls, metrics.certificates)

    return await run_proxy(settings.listener, make_tunnel or tunnel_of(outbound), make_service, "HTTP proxy")


def through_tunnel(settings: OutboundSettings, rules: ProxyRules) -> OutboundSettings:
    """The user's proxy is in the data plane, although its name may be under a cloud's domain."""
    never = (*settings.never_direct, *(proxy.host for proxy in rules.proxies))
    return OutboundSettings(**(vars(settings) | {"never_direct": never}))
