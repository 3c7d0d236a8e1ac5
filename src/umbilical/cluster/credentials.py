"""Address and credentials of the API, from a kubeconfig or the pod's service account (lightkube reads both); and the
HTTP client of an `ApiClient`, replaced when one of these files changes.
"""

import logging
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from umbilical.fault import ClusterError

if TYPE_CHECKING:
    import httpx2
    from lightkube import KubeConfig
    from lightkube.config.kubeconfig import SingleConfig


def load(kubeconfig: Path | None) -> "SingleConfig":
    """Read the current context or the in-cluster configuration. Raises ClusterError: invalid, or no lightkube."""
    try:
        from lightkube import KubeConfig
    except ImportError as error:
        raise _no_library(error) from error
    if kubeconfig is None:
        return _chosen(_from_pod(KubeConfig), "the pod's service account")
    return _chosen(_from_file(KubeConfig, kubeconfig), str(kubeconfig))


def is_loopback(server: str) -> bool:
    """Return whether the API is on this machine: then proxy variables do not apply, as in Go."""
    host = urlsplit(server).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _from_pod(reader: "type[KubeConfig]") -> "KubeConfig":
    from lightkube.core.exceptions import ConfigError

    try:
        return reader.from_service_account()
    except (ConfigError, KeyError, OSError) as error:
        raise ClusterError(
            "UMB602",
            "no kubeconfig was given, and this is not a pod with a service account",
            f"missing: {error}",
            "pass --kubeconfig=FILE, or mount the service account token",
        ) from error


def _from_file(reader: "type[KubeConfig]", path: Path) -> "KubeConfig":
    import msgspec
    import yaml
    from lightkube.core.exceptions import ConfigError

    try:
        return reader.from_file(path)
    except KeyError as error:
        raise _unusable(str(path), f"it has no {error}") from error
    except (ConfigError, OSError, yaml.YAMLError, msgspec.ValidationError, TypeError, AttributeError) as error:
        raise _unusable(str(path), str(error)) from error


def _chosen(config: "KubeConfig", origin: str) -> "SingleConfig":
    from lightkube.config.models import User
    from lightkube.core.exceptions import ConfigError

    try:
        single = config.get()
    except KeyError as error:
        raise _unusable(origin, f"its current context names {error}, which it does not define") from error
    except ConfigError as error:
        raise _unusable(origin, str(error)) from error
    if single is None:
        raise _unusable(origin, "it has no current context")
    # lightkube requires a user; contexts of test APIs without authentication have none.
    return single if single.user is not None else single._replace(user=User())


def _unusable(origin: str, why: str) -> ClusterError:
    return ClusterError("UMB601", f"could not read kubeconfig {origin}", why, "kubectl --kubeconfig FILE version")


def _no_library(error: ImportError) -> ClusterError:
    return ClusterError(
        "UMB605",
        "the Kubernetes client library is not installed",
        f"token review and leases need lightkube: {error}",
        "pip install 'umbilical[k8s]'",
    )


log: Final = logging.getLogger(__name__)

Stamp = tuple[int, int, int, int, int]


class Opened:
    """An HTTP client, the stamps of the files it was created from, and the number of its open requests."""

    def __init__(self, http: "httpx2.AsyncClient", stamps: dict[Path, Stamp | None]) -> None:
        self.http: Final = http
        self.stamps: Final = stamps
        self.users = 0

    def is_current(self) -> bool:
        return all(_stamp(path) == stamp for path, stamp in self.stamps.items())


class ApiCredentials:
    """Reloads changed files. lightkube reads certificates once, and tokens again only after a refused request."""

    def __init__(self, kubeconfig: Path | None, user_agent: str, request_seconds: float) -> None:
        """Without a kubeconfig, use the pod's service account. Raises ClusterError."""
        self._kubeconfig: Final = kubeconfig
        self._user_agent: Final = user_agent
        self._request_seconds: Final = request_seconds
        self._last_warning = ""
        self._opened = self._open()

    @asynccontextmanager
    async def client(self) -> "AsyncIterator[httpx2.AsyncClient]":
        """Yield a client for the current files; checking them for each request is cheap."""
        await self._renew()
        opened = self._opened
        opened.users += 1
        try:
            yield opened.http
        finally:
            opened.users -= 1
            if opened is not self._opened and not opened.users:
                await opened.http.aclose()

    async def close(self) -> None:
        await self._opened.http.aclose()

    async def _renew(self) -> None:
        before = self._opened
        if before.is_current():
            return
        try:
            self._opened = self._open()
        except ClusterError as fault:
            if fault.brief != self._last_warning:
                self._last_warning = fault.brief
                log.warning("%s; the previous credentials stay in use", fault.brief)
            return
        self._last_warning = ""
        log.info("reloaded the credentials of the Kubernetes API")
        if not before.users:
            await before.http.aclose()

    def _open(self) -> Opened:
        # Stamps are taken before each read, so that a change in between is noticed at the next request.
        origin = self._kubeconfig
        stamps = {} if origin is None else {origin: _stamp(origin)}
        config = load(origin)
        for path in _files(config):
            stamps[path] = _stamp(path)
        return Opened(self._connect(config), stamps)

    def _connect(self, config: "SingleConfig") -> "httpx2.AsyncClient":
        from httpx2 import Timeout
        from lightkube.config.client_adapter import AsyncClient, ConnectionParams
        from lightkube.core.exceptions import ConfigError

        timeout = Timeout(self._request_seconds)
        parameters = ConnectionParams(timeout=timeout, trust_env=not is_loopback(config.cluster.server))
        try:
            _check_token(config)
            http = AsyncClient(config, parameters)
        except (OSError, ssl.SSLError, ConfigError, ValueError) as error:
            raise ClusterError(
                "UMB601",
                f"could not load the credentials of {self._kubeconfig or 'the service account'}",
                f"{type(error).__name__}: {error}",
                "check that token or certificate, key and CA exist and belong together",
            ) from error
        http.headers["User-Agent"] = self._user_agent
        http.headers["Accept"] = "application/json"
        return http


def _files(config: "SingleConfig") -> list[Path]:
    """Return the files that the configuration names, resolved as lightkube does."""
    user = config.user
    named = [config.cluster.certificate_auth]
    if user is not None:
        named += [user.client_cert, user.client_key]
    found = [Path(config.abs_file(name)) for name in named if name]
    if user is not None and user.token_file:
        found.append(Path(user.token_file))
    return found


def _check_token(config: "SingleConfig") -> None:
    """Check the token file now, not with the first request. Raises OSError or ValueError without the token."""
    path = config.user.token_file if config.user is not None else None
    if not path:
        return
    try:
        token = Path(path).read_text().strip()
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not text") from None
    if not token:
        raise ValueError(f"{path} is empty")


def _stamp(path: Path) -> Stamp | None:
    """Return a value that changes with the file. Follows symlinks: Kubernetes updates mounted Secrets by one."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
