"""The user's proxies as settings and files have them: read at the start, and again when a file changes.

A file that cannot be used any more leaves in force what it held before. No text of it is ever shown.
"""

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from umbilical.fault import StartupError
from umbilical.proxies.environment_proxy import ProxyRules
from umbilical.proxies.proxy_connect import ProxyUrl, parse_proxy_url
from umbilical.proxies.settings import HttpsSettings

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""A request looks at the files when the last look is older; the others pay nothing."""
MAX_FILE_BYTES: Final = 64 * 1024

Stamp = tuple[int, int, int, int]


class UserProxyRules:
    def __init__(self, settings: HttpsSettings, now: Callable[[], float] = time.monotonic) -> None:
        """Raises StartupError."""
        self._settings: Final = settings
        self._now: Final = now
        files = (settings.http_proxy_file, settings.https_proxy_file, settings.proxy_credentials)
        self._files: Final = [path for path in files if path is not None]
        self._stamps = _stamps(self._files)
        self._looked_at = now()
        self._rules = read_rules(settings)

    def rules(self) -> ProxyRules:
        if self._files and self._now() - self._looked_at >= LOOK_SECONDS:
            self._looked_at = self._now()
            self._look()
        return self._rules

    def _look(self) -> None:
        stamps = _stamps(self._files)
        if stamps == self._stamps:
            return
        self._stamps = stamps
        try:
            self._rules = read_rules(self._settings)
        except StartupError as fault:
            logger.warning("%s %s: %s; the proxies from before stay", fault.code, fault.what, fault.why)
        else:
            logger.info("the user's proxies are read again: %s", ", ".join(map(str, self._rules.proxies)) or "none")


def read_rules(settings: HttpsSettings) -> ProxyRules:
    """Raises StartupError."""
    login = _login(settings.proxy_credentials)
    http = _proxy(settings.http_proxy, settings.http_proxy_file, "the proxy for http", login)
    https = _proxy(settings.https_proxy, settings.https_proxy_file, "the proxy for https", login)
    return ProxyRules(http, https, settings.no_proxy)


def _proxy(given: str, file: Path | None, what: str, login: tuple[str, str]) -> ProxyUrl | None:
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
        raise _unusable(file, "it does not hold USER:PASSWORD")
    return user, password


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            text = opened.read(MAX_FILE_BYTES + 1).decode("utf-8").strip()
    except OSError as error:
        raise _unusable(file, error.strerror or str(error)) from None
    except UnicodeDecodeError:
        raise _unusable(file, "it is no UTF-8") from None
    if len(text.splitlines()) > 1 or len(text) > MAX_FILE_BYTES:
        raise _unusable(file, "it holds more than one line")
    return text


def _unusable(file: Path, why: str) -> StartupError:
    remedy = "write one line into it, readable for this process alone"
    return StartupError("UMB548", f"cannot use {file} for the user's proxy", why, remedy)


def _stamps(files: list[Path]) -> list[Stamp | None]:
    return [_stamp(path) for path in files]


def _stamp(path: Path) -> Stamp | None:
    """Seen through links: a mounted Secret is replaced by turning one above it."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
