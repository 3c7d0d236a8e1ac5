"""Which proxy a request goes through, by rules as Go reads them from the environment, and which the environment has."""

import logging
from collections.abc import Mapping
from typing import Final

from umbilical.fault import StartupError
from umbilical.proxies.no_proxy import NoProxy
from umbilical.proxies.proxy_connect import UNREADABLE, ProxyUrl, parse_proxy_url

log: Final = logging.getLogger(__name__)


class ProxyRules:
    """A proxy for each scheme, and what goes past both."""

    def __init__(self, http: ProxyUrl | None, https: ProxyUrl | None, no_proxy: str) -> None:
        self._by_scheme: Final = {"http": http, "https": https}
        self._no_proxy: Final = NoProxy(no_proxy)

    def proxy_for(self, scheme: str, host: str, port: int) -> ProxyUrl | None:
        """None: go there without one. CONNECT, and any plain dial, is asked for as https."""
        proxy = self._by_scheme.get(scheme)
        if proxy is None or self._no_proxy.matches(host, port):
            return None
        return proxy

    @property
    def proxies(self) -> tuple[ProxyUrl, ...]:
        return tuple(proxy for proxy in self._by_scheme.values() if proxy is not None)


def rules_of_environment(environment: Mapping[str, str]) -> ProxyRules:
    """Upper case goes before lower case, and an empty variable is none, as in Go.

    A value that is no URL means no proxy, as in Go, but here the log says so. Raises StartupError for a proxy of a
    kind that we do not speak: without it such dials would leave by a way that nobody meant.
    """
    return ProxyRules(None, _proxy(environment, "HTTPS_PROXY"), _value(environment, "NO_PROXY"))


def _value(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name) or environment.get(name.lower()) or ""


def _proxy(environment: Mapping[str, str], name: str) -> ProxyUrl | None:
    try:
        return parse_proxy_url(_value(environment, name), f"the environment's {name}")
    except StartupError as error:
        if error.code != UNREADABLE:
            raise
        log.warning("%s %s, so it is not used: %s", error.code, error.what, error.why)
        return None
