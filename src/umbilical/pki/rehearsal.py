"""A TLS handshake in memory: the last word on a set of certificates is said by the library that will judge them.

Both ends are this process and no socket is opened. Python's `ssl` is the host's OpenSSL, as for our server and agents.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# X509_V_FLAG_NO_CHECK_TIME of x509_vfy.h; Python has no name for it.
_IGNORE_TIME: Final = 0x200000
_WRONG_PURPOSE: Final = 26
_ROUNDS: Final = 10
"""A handshake takes three; whatever takes more is stuck."""


@dataclass(frozen=True)
class PairFiles:
    certificate: Path
    key: Path


@dataclass(frozen=True)
class Refusal:
    why: str
    is_purpose: bool = False
    """The certificate may not be used like this: then its chain was not looked at."""


def belongs(pair: PairFiles) -> Refusal | None:
    """Tell whether a key belongs to its certificate, by loading them as a daemon does."""
    try:
        _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), pair)
    except (OSError, ValueError) as error:
        return _refusal(error)
    return None


def walk_server_chain(server: PairFiles, authority: Path) -> Refusal | None:
    """Let a client judge a server's chain and purpose, whatever the time and the name."""
    try:
        client = _client(authority, None)
        client.check_hostname = False
        client.verify_flags |= _IGNORE_TIME
        return _handshake(_server(server, None), client, None)
    except (OSError, ValueError) as error:
        return _refusal(error)


def walk_client_chain(pair: PairFiles, authority: Path) -> Refusal | None:
    """Let a server judge an agent's or client's chain and purpose, whatever the time."""
    try:
        server = _server(pair, authority)
        server.verify_flags |= _IGNORE_TIME
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname = False
        client.verify_mode = ssl.CERT_NONE
        _load(client, pair)
        return _handshake(server, client, None)
    except (OSError, ValueError) as error:
        return _refusal(error)


def connect(server: PairFiles, client: PairFiles, authority: Path, address: str) -> Refusal | None:
    """Let a client dial `address` and a server answer, both with certificates: all rules at once."""
    try:
        return _handshake(_server(server, authority), _client(authority, client), address)
    except (OSError, ValueError) as error:
        return _refusal(error)


def _server(pair: PairFiles, authority: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(context, pair)
    if authority is not None:
        context.load_verify_locations(authority)
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


def _client(authority: Path, pair: PairFiles | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    if pair is not None:
        _load(context, pair)
    return context


def _load(context: ssl.SSLContext, pair: PairFiles) -> None:
    # Without a passphrase at hand OpenSSL would ask the terminal for one.
    context.load_cert_chain(pair.certificate, pair.key, password=lambda: "")


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext, address: str | None) -> Refusal | None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_side=False, server_hostname=address),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    waiting = list(ends)
    for _ in range(_ROUNDS):
        waiting = [end for end in waiting if not _finished(end)]
        if not waiting:
            return None
    return Refusal("the handshake did not come to an end")


def _finished(end: ssl.SSLObject) -> bool:
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def _refusal(error: Exception) -> Refusal:
    if isinstance(error, ssl.SSLCertVerificationError):
        return Refusal(error.verify_message, error.verify_code == _WRONG_PURPOSE)
    if isinstance(error, ssl.SSLError):
        return Refusal((error.reason or str(error)).replace("_", " ").lower())
    if isinstance(error, OSError):
        return Refusal(error.strerror or str(error))
    return Refusal(str(error))
