"""Which proxy a request uses: rules from the environment, or from settings and files.

NO_PROXY is read as by Go's golang.org/x/net/http/httpproxy, for which lists are written: names are never resolved to
match a network, and an address never matches a name. Files are read again when they change; if the new content is
invalid, the previous values stay in use. Their content is never printed.
"""

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from umbilical.fault import StartupError
from umbilical.konnectivity.networks import Network, covers, parse_address, parse_network
from umbilical.proxies.proxy_connect import UNREADABLE, ProxyUrl, parse_proxy_url
from umbilical.proxies.settings import HttpsSettings
from umbilical.tunnel.certificates import file_stamps

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address

logger = logging.getLogger(__name__)


class NoProxy:
    """A comma-separated list, parsed once."""

    def __init__(self, text: str) -> None:
        self._all = False
        self._networks: list[Network] = []
        self._addresses: list[tuple[Network, str]] = []
        self._suffixes: list[tuple[str, bool, str]] = []
        for entry in text.split(","):
            self._add(entry.strip().lower())

    def matches(self, host: str, port: int) -> bool:
        """Return whether no proxy is used for this; loopback never uses one."""
        if host == "localhost":  # lower case only, as in Go
            return True
        address = parse_address(host)
        if self._all or (address is not None and _is_loopback(address)):
            return True
        if address is not None:
            return self._holds(_network_of(address), str(port))
        return self._names(_ascii(host.strip().lower()), str(port))

    def _add(self, entry: str) -> None:
        if entry == "*":
            self._all = True
            return
        network = parse_network(entry) if "/" in entry else None
        if network is not None:
            self._networks.append(network)
            return
        name, port = _split(entry)
        address = None if "%" in name else parse_address(name)
        if address is not None:
            self._addresses.append((_network_of(address), port))
        elif name:
            self._add_name(name, port)

    def _add_name(self, name: str, port: str) -> None:
        if name.startswith("*."):
            name = name[1:]
        itself = not name.startswith(".")
        self._suffixes.append(("." + _ascii(name.removeprefix(".")), itself, port))

    def _holds(self, address: Network, port: str) -> bool:
        if any(covers(network, address) for network in self._networks):
            return True
        return any(listed == address and wanted in ("", port) for listed, wanted in self._addresses)

    def _names(self, host: str, port: str) -> bool:
        return any(
            (host.endswith(suffix) or (itself and host == suffix[1:])) and wanted in ("", port)
            for suffix, itself, wanted in self._suffixes
        )


def _network_of(address: "IPv4Address | IPv6Address") -> Network:
    return address.version, address.max_prefixlen, int(address)


def _is_loopback(address: "IPv4Address | IPv6Address") -> bool:
    # Not Python's is_loopback, which counts the zone as part of an IPv6 address.
    return int(address) >> 24 == 127 if address.version == 4 else int(address) == 1


def _split(entry: str) -> tuple[str, str]:
    """Return host and port as Go's SplitHostPort does; without a port the whole is the host."""
    if entry.startswith("["):
        host, bracket, rest = entry[1:].partition("]")
        fits = bracket and rest.startswith(":") and not set("[]") & set(host + rest) and ":" not in rest[1:]
        return (host, rest[1:]) if fits else (entry, "")
    host, _, port = entry.partition(":")
    fits = ":" in entry and ":" not in port and not set("[]") & set(entry)
    return (host, port) if fits else (entry, "")


def _ascii(name: str) -> str:
    if name.isascii():
        return name
    try:
        return name.encode("idna").decode("ascii")
    except UnicodeError:
        return name


class ProxyRules:
    """A proxy for each scheme, and the hosts without one."""

    def __init__(self, http: ProxyUrl | None, https: ProxyUrl | None, no_proxy: str) -> None:
        self._by_scheme: Final = {"http": http, "https": https}
        self._no_proxy: Final = NoProxy(no_proxy)

    def proxy_for(self, scheme: str, host: str, port: int) -> ProxyUrl | None:
        """Return None for no proxy. The scheme of CONNECT and of any plain dial is https."""
        proxy = self._by_scheme.get(scheme)
        if proxy is None or self._no_proxy.matches(host, port):
            return None
        return proxy

    @property
    def proxies(self) -> tuple[ProxyUrl, ...]:
        return tuple(proxy for proxy in self._by_scheme.values() if proxy is not None)


def rules_of_environment(environment: Mapping[str, str]) -> ProxyRules:
    """Read the variables as Go does: upper case first; an empty variable is not set.

    An invalid URL means no proxy, as in Go, with a log line. Raises StartupError for a proxy with an unsupported
    scheme: without the proxy such dials would take an unintended route.
    """
    return ProxyRules(None, _proxy_of_environment(environment, "HTTPS_PROXY"), _value(environment, "NO_PROXY"))


def _value(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name) or environment.get(name.lower()) or ""


def _proxy_of_environment(environment: Mapping[str, str], name: str) -> ProxyUrl | None:
    try:
        return parse_proxy_url(_value(environment, name), f"the environment's {name}")
    except StartupError as error:
        if error.code != UNREADABLE:
            raise
        logger.warning("%s %s and is ignored: %s", error.code, error.what, error.why)
        return None


LOOK_SECONDS: Final = 1.0
"""Shortest interval between checks of the files; requests in between skip the check."""
MAX_FILE_BYTES: Final = 64 * 1024


class UserProxyRules:
    def __init__(self, settings: HttpsSettings, now: Callable[[], float] = time.monotonic) -> None:
        """Raises StartupError."""
        self._settings: Final = settings
        self._now: Final = now
        files = (settings.http_proxy_file, settings.https_proxy_file, settings.proxy_credentials)
        self._files: Final = [path for path in files if path is not None]
        self._stamps = file_stamps(self._files)
        self._looked_at = now()
        self._rules = read_rules(settings)

    def rules(self) -> ProxyRules:
        if self._files and self._now() - self._looked_at >= LOOK_SECONDS:
            self._looked_at = self._now()
            self._look()
        return self._rules

    def _look(self) -> None:
        stamps = file_stamps(self._files)
        if stamps == self._stamps:
            return
        self._stamps = stamps
        try:
            self._rules = read_rules(self._settings)
        except StartupError as fault:
            logger.warning("%s %s: %s; the previous proxies stay in use", fault.code, fault.what, fault.why)
        else:
            logger.info("proxy files were read again: %s", ", ".join(map(str, self._rules.proxies)) or "none")


def read_rules(settings: HttpsSettings) -> ProxyRules:
    """Raises StartupError."""
    login = _login(settings.proxy_credentials)
    http = _proxy_of_settings(settings.http_proxy, settings.http_proxy_file, "the proxy for http", login)
    https = _proxy_of_settings(settings.https_proxy, settings.https_proxy_file, "the proxy for https", login)
    return ProxyRules(http, https, settings.no_proxy)


def _proxy_of_settings(given: str, file: Path | None, what: str, login: tuple[str, str]) -> ProxyUrl | None:
    text = given if file is None else _text(file)
    proxy = parse_proxy_url(text, what if file is None else f"{what} in {file}")
    if proxy is None or proxy.authorization:
        return proxy
    return ProxyUrl(proxy.scheme, proxy.host, proxy.port, *login)


def _login(file: Path | None) -> tuple[str, str]:
    if file is None:
        return "", ""
    user, colon, password = _text(file).partition(":")
    if not colon or not user:
        raise _unusable(file, "it does not contain USER:PASSWORD")
    return user, password


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            text = opened.read(MAX_FILE_BYTES + 1).decode("utf-8").strip()
    except OSError as error:
        raise _unusable(file, error.strerror or str(error)) from None
    except UnicodeDecodeError:
        raise _unusable(file, "it is not UTF-8") from None
    if len(text.splitlines()) > 1 or len(text) > MAX_FILE_BYTES:
        raise _unusable(file, "it has more than one line")
    return text


def _unusable(file: Path, why: str) -> StartupError:
    remedy = "write one line into it, readable for this process only"
    return StartupError("UMB548", f"could not read {file} for the user's proxy", why, remedy)
