"""Validity dates of certificates, which `ssl` shows neither for our own nor for a refused one.

`explain` connects once more to a server whose certificate was refused, without checking dates and names and without
sending anything, to add the certificate's dates or names to the error.
"""

import asyncio
import ssl
import time
from pathlib import Path
from typing import Final

from umbilical.fault import StartupError
from umbilical.record import Record
from umbilical.tunnel import outbound
from umbilical.tunnel.settings import AgentSettings, ServerAddress
from umbilical.tunnel.tls import agent_context, tls_name

_SEQUENCE: Final = 0x30
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_FIELDS_BEFORE: Final = 4
"""Version, serial number, signature algorithm, issuer: RFC 5280 §4.1."""
_DAYS_BEFORE_1970: Final = 719_468
"""Since 1 March of the year 0."""
_END: Final = "-----END CERTIFICATE-----"


class Validity(Record):
    """Moments as `20261116100000`: comparing the texts compares the times."""

    not_before: str
    not_after: str

    @property
    def span(self) -> str:
        return f"from {shown(self.not_before)} until {shown(self.not_after)}"

    def holds_at(self, seconds: float) -> bool:
        return self.not_before <= moment_of(seconds) <= self.not_after


def shown(moment: str) -> str:
    date, clock = moment[:8], moment[8:]
    return f"{date[:4]}-{date[4:6]}-{date[6:]}T{clock[:2]}:{clock[2:4]}:{clock[4:]}Z"


def shown_exactly(seconds: float) -> str:
    """Unix time as `2026-11-20T08:15:30.123Z`."""
    return f"{shown(moment_of(seconds))[:-1]}.{int(seconds * 1000) % 1000:03}Z"


def moment_of(seconds: float) -> str:
    return time.strftime("%Y%m%d%H%M%S", time.gmtime(seconds))


def seconds_of(moment: str) -> float:
    """Return Unix time. Raises ValueError for a date or time that does not exist.

    Not by `time.strptime`, which would load five more modules at the start of every daemon.
    """
    year, month, day = int(moment[:4]), int(moment[4:6]), int(moment[6:8])
    hour, minute, second = int(moment[8:10]), int(moment[10:12]), int(moment[12:])
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second <= 60):
        raise ValueError(f"there is no {shown(moment)}")
    # Years that begin in March have their leap day at the end.
    if month <= 2:
        year -= 1
    days_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    days = 365 * year + year // 4 - year // 100 + year // 400 + days_of_year - _DAYS_BEFORE_1970
    return ((days * 24.0 + hour) * 60 + minute) * 60 + second


def of_file(path: Path) -> Validity | None:
    """Read the first certificate of a PEM file; None if it cannot be read."""
    try:
        return of_der(first_der(path))
    except (OSError, ValueError):
        return None


def first_der(path: Path) -> bytes:
    """Return the first certificate of a PEM file: the one presented in handshakes. Raises OSError or ValueError."""
    text = path.read_text(encoding="ascii", errors="ignore")
    start = text.index("-----BEGIN CERTIFICATE-----")
    return ssl.PEM_cert_to_DER_cert(text[start : text.index(_END, start) + len(_END)])


def of_der(data: bytes) -> Validity:
    """Raises ValueError for anything but a certificate."""
    body = _content(_content(data, _SEQUENCE), _SEQUENCE)
    # The version is omitted if it is 1; the serial number then comes first.
    skip = _FIELDS_BEFORE if body[:1] == b"\xa0" else _FIELDS_BEFORE - 1
    for _ in range(skip):
        body = body[_span(body)[1] :]
    times = _content(body, _SEQUENCE)
    second = _span(times)[1]
    return Validity(_moment_of_der(times[:second]), _moment_of_der(times[second:]))


def _moment_of_der(element: bytes) -> str:
    start, end = _span(element)
    digits = element[start:end].decode("ascii").removesuffix("Z")
    if element[0] == _UTC_TIME:
        digits = ("19" if digits[:2] >= "50" else "20") + digits
    if element[0] not in (_UTC_TIME, _GENERALIZED_TIME) or len(digits) != 14 or not digits.isdigit():
        raise ValueError("malformed time in a certificate")
    seconds_of(digits)
    return digits


def _content(data: bytes, tag: int) -> bytes:
    start, end = _span(data)
    if data[0] != tag:
        raise ValueError(f"tag {data[0]:#04x}, expected {tag:#04x}")
    return data[start:end]


def _span(data: bytes) -> tuple[int, int]:
    """Return the offsets of the first DER element's content."""
    if len(data) < 2:
        raise ValueError("DER element without a length")
    start, length = 2, data[1]
    if length & 0x80:
        start = 2 + (length & 0x7F)
        length = int.from_bytes(data[2:start], "big")
    if start + length > len(data):
        raise ValueError("DER element is cut off")
    return start, start + length


LOOK_SECONDS: Final = 5.0
_NO_CHECK_TIME: Final = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME; `ssl` has no constant for it."""


async def explain(settings: AgentSettings, server: ServerAddress, address: outbound.Address | None, code: str) -> str:
    """Return a text to append to the reason of a failed connect; empty if there is nothing to add."""
    if code in ("UMB331", "UMB332"):
        return _own(settings)
    if code not in ("UMB321", "UMB322", "UMB323"):
        return ""
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            return _words(await _look(settings, server, address), code)
    except (OSError, ValueError, TimeoutError, StartupError):
        return ""  # the reason is complete without it


def _own(settings: AgentSettings) -> str:
    if settings.tls.certificate is None:
        return ""
    ours = of_file(settings.tls.certificate)
    return "" if ours is None else f"; our certificate is valid {ours.span}; this machine's clock shows {_now()}"


def _words(certificate: dict[str, object], code: str) -> str:
    if code == "UMB323":
        names = certificate.get("subjectAltName", ())
        assert isinstance(names, tuple)
        return f"; the certificate is for {', '.join(value for _, value in names) or 'no name or address'}"
    if code == "UMB321":
        return f"; it was valid until {_moment(certificate, 'notAfter')}; this machine's clock shows {_now()}"
    start = _moment(certificate, "notBefore")
    return f"; it is valid only from {start}; this machine's clock shows {_now()}: compare the clocks of both machines"


def _moment(certificate: dict[str, object], member: str) -> str:
    return shown(moment_of(ssl.cert_time_to_seconds(str(certificate[member]))))


def _now() -> str:
    return shown(moment_of(time.time()))


async def _look(settings: AgentSettings, server: ServerAddress, address: outbound.Address | None) -> dict[str, object]:
    context = agent_context(settings.tls, settings.alpn_protocols)
    context.check_hostname = False
    context.verify_flags |= _NO_CHECK_TIME
    sock = await outbound.connect(server.host, server.port, address)
    try:
        _, writer = await asyncio.open_connection(sock=sock, ssl=context, server_hostname=tls_name(server.host))
        certificate = dict(writer.get_extra_info("peercert") or {})
        writer.transport.abort()
    finally:
        await asyncio.sleep(0)  # asyncio closes what it was given in its next turn
        sock.close()
    return certificate
