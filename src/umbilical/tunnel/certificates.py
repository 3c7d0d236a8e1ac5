"""TLS contexts that reload changed certificate files for new handshakes; existing connections are not affected.

If any new file cannot be used, all old ones stay in use and the log has the reason. A new context has new session
ticket keys, so that a client cannot resume a session after its CA was removed.
"""

import hashlib
import logging
import math
import os
import ssl
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from umbilical.fault import StartupError
from umbilical.tunnel import causes, certificate_dates, revocation, tls
from umbilical.tunnel.certificate_dates import Validity
from umbilical.tunnel.loop import Handler, Loop, Timer
from umbilical.tunnel.metrics import CertificateMetrics
from umbilical.tunnel.revocation import Revoked
from umbilical.tunnel.settings import AgentSettings, ServerSettings, TcpFrontend, TlsFiles, TlsPolicy

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""Minimum time between checks of the files by handshakes."""
WATCH_SECONDS: Final = 5.0
"""Interval of checks without any handshake, so that a bad file is logged before it is needed."""
RETRY_SECONDS: Final = 30.0
"""Interval of attempts with unchanged bad files: a fix of permissions or of the clock does not change the files."""
WARNED_SHARE: Final = 0.1
WARNED_SECONDS: Final = 24 * 3600.0
"""Warn in the last tenth of the validity, at most a day before the end: our certificates are valid for a day."""

_FINGERPRINT_DIGITS: Final = 16

Stamp = tuple[int, int, int, int, int]


def agent_listener(settings: ServerSettings, loop: Loop, metrics: CertificateMetrics) -> "WatchedContext":
    build = partial(tls.agent_listener_context, settings.agent_tls, settings.tls_policy)
    return WatchedContext(loop, CertificateUse("agent-listener", "UMB343", settings.agent_tls, build), metrics)


def frontend(settings: ServerSettings, alpn: str, loop: Loop, metrics: CertificateMetrics) -> "WatchedContext | None":
    """None for a Unix socket: its file mode decides who may connect."""
    if not isinstance(settings.frontend, TcpFrontend):
        return None
    files = settings.frontend.tls
    build = partial(tls.listener_context, files, settings.tls_policy, alpn, "frontend")
    return WatchedContext(loop, CertificateUse("frontend", "UMB343", files, build), metrics)


def admin(
    files: TlsFiles, policy: TlsPolicy, loop: "TimerLoop", metrics: CertificateMetrics
) -> "WatchedContext | None":
    """None without a certificate: the admin port then speaks plain HTTP, as upstream's."""
    if files.certificate is None:
        return None
    build = partial(tls.listener_context, files, policy, "http/1.1", "admin")
    return WatchedContext(loop, CertificateUse("admin", "UMB343", files, build), metrics)


def agent(settings: AgentSettings, loop: Loop, metrics: CertificateMetrics) -> "WatchedContext":
    """Already started: an agent has no listener that would start it."""
    build = partial(tls.agent_context, settings.tls, settings.alpn_protocols)
    watched = WatchedContext(loop, CertificateUse("agent", "UMB344", settings.tls, build), metrics)
    watched.start()
    return watched


class TimerLoop(Protocol):
    """The timers of the data plane's loop, or of asyncio's."""

    @property
    def now(self) -> float: ...
    def after(self, seconds: float, handler: Handler) -> Timer: ...
    def cancel(self, timer: Timer) -> None: ...


class CertificateUse:
    """What the files are for. `build` raises StartupError; `code` is logged with files that cannot be used."""

    def __init__(self, role: str, code: str, files: TlsFiles, build: Callable[[], ssl.SSLContext]) -> None:
        self.role: Final = role
        self.code: Final = code
        self.files: Final = files
        self.build: Final = build

    def paths(self) -> list[Path]:
        files = self.files
        found = (files.certificate, files.key, files.authority, files.revoked)
        return [path for path in found if path is not None]

    def path_of(self, part: str) -> Path | None:
        files = self.files
        return {"ca": files.authority, "crl": files.revoked}.get(part, files.certificate)


class LoadedFiles:
    """A context and facts about its files for the log; never about a key."""

    def __init__(
        self,
        context: ssl.SSLContext,
        digest: bytes,
        lives: dict[str, Validity],
        fingerprint: str,
        revoked: Revoked | None,
    ) -> None:
        self.context: Final = context
        self.digest: Final = digest
        """Of all files except the key, to detect real changes. A new key requires a new certificate anyway."""
        self.lives: Final = lives
        """By `certificate`, `ca` and `crl`."""
        self.fingerprint: Final = fingerprint
        """First digits of `openssl x509 -fingerprint -sha256` of our certificate; empty without one."""
        self.revoked: Final = revoked

    def told(self) -> str:
        shown = f"certificate=sha256:{self.fingerprint} " if self.fingerprint else ""
        return shown + " ".join(
            f"{part}_until={certificate_dates.shown(life.not_after)}" for part, life in self.lives.items()
        )


class WatchedContext(Handler):
    def __init__(self, loop: TimerLoop, use: CertificateUse, metrics: CertificateMetrics) -> None:
        """Raises StartupError when the files cannot be used."""
        self._loop: Final = loop
        self._use: Final = use
        self._metrics: Final = metrics
        self._paths: Final = use.paths()
        self._stamps = file_stamps(self._paths)
        self._loaded = _load(use)
        self._looked_at = loop.now
        self._retry_at = math.inf
        self._reason = ""
        """Why the last attempt to use the files failed; empty after success."""
        self._told = False
        self._told_ages: dict[str, str] = {}
        self._timer: Timer | None = None
        self.on_revoked: Callable[[Revoked], None] | None = None
        """Called with changed revocation lists."""
        self._publish()

    def context(self) -> ssl.SSLContext:
        """Return the context for a handshake that begins now."""
        if self._loop.now - self._looked_at >= LOOK_SECONDS:
            self.look()
        return self._loaded.context

    @property
    def role(self) -> str:
        return self._use.role

    def lives(self) -> dict[str, Validity]:
        """Of what is in use, by `certificate` and `ca`."""
        return self._loaded.lives

    def path_of(self, part: str) -> Path | None:
        return self._use.path_of(part)

    def start(self) -> None:
        """Check the files regularly from now on."""
        self._timer = self._loop.after(WATCH_SECONDS, self)
        self._tell_ages()

    def stop(self) -> None:
        if self._timer is not None:
            self._loop.cancel(self._timer)
            self._timer = None

    def on_timer(self) -> None:
        self._timer = self._loop.after(WATCH_SECONDS, self)
        self.look()

    def on_crash(self, error: Exception) -> None:
        logger.error("internal error while checking certificates role=%s: %r", self._use.role, error)

    def look(self) -> None:
        """Read the files if they have changed. Never raises because of their content."""
        now = self._loop.now
        self._looked_at = now
        stamps = file_stamps(self._paths)
        if stamps != self._stamps or now >= self._retry_at:
            self._attempt(stamps)
        self._tell_ages()

    def _attempt(self, stamps: list[Stamp | None]) -> None:
        self._stamps = stamps
        try:
            fresh = _load(self._use)
            self._refuse_worse(fresh)
        except StartupError as error:
            self._keep(error)
            return
        if file_stamps(self._paths) != stamps:
            return  # written while we read: the next check sees new stamps and reads again
        self._take(fresh)

    def _refuse_worse(self, fresh: LoadedFiles) -> None:
        """A certificate that is not valid now never replaces one that is."""
        now = time.time()
        for file, life in fresh.lives.items():
            current = self._loaded.lives.get(file)
            if current is not None and current.holds_at(now) and not life.holds_at(now):
                remedy = "issue a valid certificate: umbilical pki rotate --dir DIRECTORY; check the clock: date -u"
                path = self._use.path_of(file)
                raise StartupError(self._use.code, f"cannot use {path}", f"it is valid {life.span}, not now", remedy)

    def _keep(self, error: StartupError) -> None:
        """Log at the second failure: the first check may have run between the writes of certificate and key."""
        if str(error) != self._reason:
            self._reason, self._told = str(error), False
            self._retry_at = self._loop.now
            return
        self._retry_at = self._loop.now + RETRY_SECONDS
        if self._told:
            return
        self._told = True
        self._metrics.reloaded(self._use.role, "failure")
        text = "%s changed certificate files cannot be used, the previous ones stay in use role=%s: %s"
        fields = causes.log_fields(self._use.code, error.remedy)
        logger.warning(text, self._use.code, self._use.role, self._reason, extra=fields)

    def _take(self, fresh: LoadedFiles) -> None:
        is_news = self._told or fresh.digest != self._loaded.digest
        self._reason, self._told, self._retry_at = "", False, math.inf
        if not is_news:
            return  # same content: sessions can still be resumed
        self._loaded = fresh
        self._told_ages = {}
        self._publish()
        self._metrics.reloaded(self._use.role, "success")
        logger.info("certificates reloaded for new handshakes role=%s %s", self._use.role, fresh.told())
        if fresh.revoked is not None and self.on_revoked is not None:
            self.on_revoked(fresh.revoked)

    def _publish(self) -> None:
        for file, life in self._loaded.lives.items():
            self._metrics.expiry[self._use.role, file] = certificate_dates.seconds_of(life.not_after)

    def _tell_ages(self) -> None:
        now = time.time()
        for file, life in self._loaded.lives.items():
            age = age_of(life, now)
            if age == self._told_ages.get(file, ""):
                continue
            self._told_ages[file] = age
            if age:
                words = "%s the %s in use %s role=%s file=%s until=%s"
                until = certificate_dates.shown(life.not_after)
                where = self._use.path_of(file)
                fields = causes.log_fields("UMB345", causes.NEXT["UMB345"])
                what = {"ca": "CA", "crl": "revocation list"}.get(file, file)
                logger.warning(words, "UMB345", what, age, self._use.role, where, until, extra=fields)


def age_of(life: Validity, now: float) -> str:
    """Return words for the log; empty if there is nothing to log."""
    end = certificate_dates.seconds_of(life.not_after)
    if now > end:
        return "has expired"
    share = (end - certificate_dates.seconds_of(life.not_before)) * WARNED_SHARE
    return "expires soon" if end - now < min(share, WARNED_SECONDS) else ""


def _load(use: CertificateUse) -> LoadedFiles:
    context = use.build()
    digest = _digest(use.files)
    lives: dict[str, Validity] = {}
    fingerprint = ""
    if use.files.certificate is not None:
        try:
            ours = certificate_dates.first_der(use.files.certificate)
            fingerprint = hashlib.sha256(ours).hexdigest()[:_FINGERPRINT_DIGITS]
            lives["certificate"] = certificate_dates.of_der(ours)
        except (OSError, ValueError):
            pass  # OpenSSL has accepted it: it is used without being logged
    trusted = _last_to_end(context.get_ca_certs(binary_form=True))
    if trusted is not None:
        lives["ca"] = trusted
    revoked: Revoked | None = None
    if use.files.revoked is not None:
        revoked = revocation.read(use.files.revoked, context.get_ca_certs(binary_form=True))
        lives["crl"] = revoked.validity
    return LoadedFiles(context, digest, lives, fingerprint, revoked)


def _last_to_end(authorities: list[bytes]) -> Validity | None:
    """Return the CA that expires last, preferring those valid now. An old CA may expire during a rotation."""
    now = certificate_dates.moment_of(time.time())
    last: Validity | None = None
    for der in authorities:
        try:
            life = certificate_dates.of_der(der)
        except ValueError:
            continue
        if last is None or (life.not_before <= now, life.not_after) > (last.not_before <= now, last.not_after):
            last = life
    return last


def _digest(files: TlsFiles) -> bytes:
    digest = hashlib.sha256()
    for path in (files.certificate, files.authority, files.revoked):
        if path is not None:
            try:
                digest.update(path.read_bytes())
            except OSError as error:  # removed since the context was made
                why = f"open {path}: {error.strerror or error}"
                raise StartupError("UMB022", "cannot load certificates", why, "give readable PEM files") from error
    return digest.digest()


def file_stamps(paths: list[Path]) -> list[Stamp | None]:
    """Return what changes with a file. Links are followed: a mounted Secret is updated by replacing a link.

    The change time is included because some tools restore the modification time.
    """
    return [file_stamp(path) for path in paths]


def file_stamp(path: Path) -> Stamp | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
