"""TLS over any connection that sends and receives bytes, as a client: what lies below need not be a socket."""

import ssl
from typing import Final, Protocol

CHUNK_BYTES: Final = 64 * 1024
_HOSTNAME_MISMATCH: Final = (62, 64)
"""X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""
_UNKNOWN_AUTHORITY: Final = (2, 18, 19, 20, 21, 27)
"""OpenSSL's ways to say that no chain leads to a trusted authority."""
_OUTSIDE_VALIDITY: Final = (9, 10)


class Below(Protocol):
    def send(self, payload: bytes) -> None: ...
    def receive(self) -> bytes: ...
    def close(self) -> None: ...


class TlsRefused(Exception):
    """The handshake failed; `str()` is in Go's words where Go has its own."""


class TlsStream:
    """The waits are those of the connection below: they end when its deadline does."""

    def __init__(self, below: Below, context: ssl.SSLContext, server_name: str) -> None:
        self._below: Final = below
        self._incoming: Final = ssl.MemoryBIO()
        self._outgoing: Final = ssl.MemoryBIO()
        self._tls: Final = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        self._server_name: Final = server_name

    def handshake(self) -> None:
        """Raises TlsRefused."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._feed()
            except ssl.SSLError as error:
                self._flush_alert()
                raise TlsRefused(go_words(error, self._server_name)) from None
            else:
                self._flush()
                return

    def send(self, payload: bytes) -> None:
        self._tls.write(payload)
        self._flush()

    def receive(self) -> bytes:
        """Return b"" at the end, also at one without TLS's own farewell: HTTP knows how long a message is."""
        while True:
            try:
                return self._tls.read(CHUNK_BYTES)
            except ssl.SSLWantReadError:
                self._feed()
            except ssl.SSLError:
                return b""

    def close(self) -> None:
        self._below.close()

    def _feed(self) -> None:
        self._flush()
        received = self._below.receive()
        if received:
            self._incoming.write(received)
        else:
            self._incoming.write_eof()

    def _flush(self) -> None:
        if octets := self._outgoing.read():
            self._below.send(octets)

    def _flush_alert(self) -> None:
        try:
            self._flush()
        except OSError:
            pass  # the reason is told by the handshake's own error


def go_words(error: ssl.SSLError, server_name: str) -> str:
    if not isinstance(error, ssl.SSLCertVerificationError):
        return "EOF" if isinstance(error, ssl.SSLEOFError) else f"tls: {error.reason or error}"
    if error.verify_code in _UNKNOWN_AUTHORITY:
        why = "certificate signed by unknown authority"
    elif error.verify_code in _HOSTNAME_MISMATCH:
        why = f"certificate is not valid for {server_name}"
    elif error.verify_code in _OUTSIDE_VALIDITY:
        why = "certificate has expired or is not yet valid"
    else:
        why = error.verify_message
    return f"tls: failed to verify certificate: x509: {why}"
