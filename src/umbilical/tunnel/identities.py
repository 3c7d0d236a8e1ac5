"""Identities of peers from their certificates, and the file of rules that applies to them.

The file is checked when an agent connects. If it cannot be used, the previous rules stay in use.
"""

import logging
import os
import ssl
from pathlib import Path
from typing import Any, Final

from umbilical.fault import StartupError
from umbilical.konnectivity.identity import AgentRules, client_refusal, parse_agent_rules
from umbilical.konnectivity.metadata import AgentIdentifiers
from umbilical.tunnel import causes

logger = logging.getLogger(__name__)

_SUBJECT_KINDS: Final = {"commonName": "CN", "organizationName": "O"}
_NAME_KINDS: Final = {"DNS": "DNS", "URI": "URI"}
_MOST_REMEMBERED: Final = 256


def proved_by(tls: ssl.SSLObject | None) -> tuple[str, ...]:
    """Return the identities in the verified certificate of a peer; none without a certificate."""
    certificate: Any = tls.getpeercert() if tls is not None else None
    if not certificate:
        return ()
    subject = [pair for relative_name in certificate.get("subject", ()) for pair in relative_name]
    found = [f"{_SUBJECT_KINDS[kind]}={value}" for kind, value in subject if kind in _SUBJECT_KINDS]
    names = certificate.get("subjectAltName", ())
    found += [f"{_NAME_KINDS[kind]}={value}" for kind, value in names if kind in _NAME_KINDS]
    return tuple(found)


def short_name(proved: tuple[str, ...]) -> str:
    """One of the identities for a log line: the common name if there is one. Quotes would end the field early."""
    named = [one for one in proved if one.startswith("CN=")] or [*proved, ""]
    return named[0].replace('"', "'")


class ClientGate:
    """Decides which clients may open tunnels over TLS. Cached: thousands of connections share a certificate."""

    def __init__(self, allowed: tuple[str, ...]) -> None:
        self._allowed: Final = allowed
        self._known: Final[dict[bytes, tuple[str, str]]] = {}

    def judge(self, tls: ssl.SSLObject | None) -> tuple[str, str]:
        """Return the client's name, and the reason of a refusal: empty if allowed."""
        der = tls.getpeercert(True) if tls is not None else None
        if der is None:
            return "", ""
        known = self._known.get(der)
        if known is None:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            proved = proved_by(tls)
            known = self._known[der] = short_name(proved), client_refusal(proved, self._allowed)
        return known


class AgentGate:
    """Decides which identifiers an agent may announce. Without a file all are allowed, as upstream."""

    def __init__(self, path: Path | None, token_identity: str) -> None:
        """Raises StartupError when the file cannot be used."""
        self._path: Final = path
        self._token_identity: Final = token_identity
        self._stamp: tuple[int, int, int] | None = None
        self._rules: AgentRules | None = None
        if path is not None:
            self._rules = self._read(path)

    def refusal(self, tls: ssl.SSLObject | None, identifiers: AgentIdentifiers) -> str:
        """Return the reason of a refusal; empty if allowed."""
        self._look()
        if self._rules is None:
            return ""
        proved = proved_by(tls)
        if self._token_identity:
            proved = (*proved, self._token_identity)
        return self._rules.refusal(proved, identifiers)

    def _look(self) -> None:
        path = self._path
        if path is None or _stamp(path) == self._stamp:
            return
        try:
            self._rules = self._read(path)
            logger.info("agent identity rules reloaded file=%s", path)
        except StartupError as error:
            cause = causes.FailureCause("UMB347", error.why)
            text = "%s changed agent identity rules cannot be used, the previous ones stay in use file=%s: %s"
            logger.warning(text, cause.code, path, cause.text, extra=cause.fields)

    def _read(self, path: Path) -> AgentRules:
        self._stamp = _stamp(path)
        try:
            return parse_agent_rules(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            why = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
            remedy = "write one line per identity: CN=konnectivity-agent default-route=true"
            raise StartupError("UMB347", f"cannot use the agent identity rules in {path}", why, remedy) from error


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
