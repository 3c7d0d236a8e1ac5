"""What a directory of a tunnel's certificates is, seen as its server and its agents will see it: the last word is said
by a TLS handshake in memory, with the library that both ends use.
"""

import ssl
import stat
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from umbilical.pki.certificate import Certificate, read_certificates
from umbilical.pki.pem import BundleError, encode_blocks, holds_key
from umbilical.pki.tunnel_set import AUTHORITY_FILE, AUTHORITY_KEY_FILE, Role

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


@dataclass(frozen=True)
class CertificateFile:
    path: Path
    certificates: tuple[Certificate, ...] = ()
    trouble: str = ""
    """Why there are none."""

    @property
    def exists(self) -> bool:
        return bool(self.certificates) or self.path.exists()


@dataclass(frozen=True)
class KeyFile:
    path: Path
    mode: int | None
    """Permission bits; None where there is no such file."""
    refusal: Refusal | None
    """Why it does not go with its certificate."""


@dataclass(frozen=True)
class LeafFacts:
    role: Role
    file: CertificateFile
    key: KeyFile
    chain: Refusal | None
    """Why the other side would not accept it, time and names apart."""

    @property
    def certificate(self) -> Certificate | None:
        return self.file.certificates[0] if self.file.certificates else None

    @property
    def is_loadable(self) -> bool:
        return self.certificate is not None and self.key.refusal is None


@dataclass(frozen=True)
class DirectoryFacts:
    folder: Path
    folder_mode: int
    authority: CertificateFile
    authority_key: KeyFile
    leaves: Mapping[Role, LeafFacts]
    connections: Mapping[str, Refusal | None]
    """What came of a handshake between agent and server, by dialled address."""

    def issuer_of(self, leaf: Certificate) -> Certificate | None:
        """Find the authority that a leaf names; whether it really signed it is not said."""
        named = [one for one in self.authority.certificates if one.subject == leaf.issuer]
        exact = [one for one in named if one.key_identifier == leaf.authority_identifier]
        return next(iter(exact or named), None)


def look_at(folder: Path, roles: Iterable[Role], addresses: Iterable[str]) -> DirectoryFacts:
    """Gather the facts. Without addresses, agents dial the first name in the server's certificate."""
    authority = read_certificate_file(folder / AUTHORITY_FILE)
    leaves = {role: _leaf(folder, role, authority) for role in roles}
    return DirectoryFacts(
        folder=folder,
        folder_mode=stat.S_IMODE(folder.stat().st_mode),
        authority=authority,
        authority_key=_authority_key(folder / AUTHORITY_KEY_FILE, authority),
        leaves=leaves,
        connections=_connections(leaves, authority, tuple(addresses)),
    )


def read_certificate_file(path: Path) -> CertificateFile:
    try:
        pem = path.read_bytes()
        return CertificateFile(path, tuple(read_certificates(pem)))
    except OSError as error:
        return CertificateFile(path, trouble=error.strerror or str(error))
    except BundleError as error:
        hint = "it holds a private key" if holds_key(pem) else str(error)
        return CertificateFile(path, trouble=hint)


def _leaf(folder: Path, role: Role, authority: CertificateFile) -> LeafFacts:
    file = read_certificate_file(folder / role.certificate_file)
    key = _key(folder / role.key_file, file)
    pair = PairFiles(file.path, key.path)
    if not file.certificates or key.refusal or not authority.certificates:
        return LeafFacts(role, file, key, None)
    walk = walk_server_chain if role is Role.SERVER else walk_client_chain
    return LeafFacts(role, file, key, walk(pair, authority.path))


def _key(path: Path, certificate: CertificateFile) -> KeyFile:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        return KeyFile(path, None, Refusal(error.strerror or str(error)))
    if not certificate.certificates:
        return KeyFile(path, mode, None)
    return KeyFile(path, mode, belongs(PairFiles(certificate.path, path)))


def _authority_key(path: Path, bundle: CertificateFile) -> KeyFile:
    """Look for the key's own certificate: a bundle holds others, before or after it."""
    found = _key(path, CertificateFile(bundle.path))
    if found.mode is None or not bundle.certificates:
        return found
    refusals = []
    with tempfile.TemporaryDirectory(prefix="umbilical-pki-") as scratch:
        for certificate in bundle.certificates:
            alone = Path(scratch) / AUTHORITY_FILE
            alone.write_bytes(encode_blocks([certificate.encoded]))
            refusals.append(belongs(PairFiles(alone, path)))
    return KeyFile(path, found.mode, None if None in refusals else refusals[0])


def _connections(
    leaves: Mapping[Role, LeafFacts], authority: CertificateFile, addresses: tuple[str, ...]
) -> dict[str, Refusal | None]:
    server, agent = leaves.get(Role.SERVER), leaves.get(Role.AGENT)
    if server is None or agent is None or not (server.is_loadable and agent.is_loadable and authority.certificates):
        return {}
    ends = [PairFiles(leaf.file.path, leaf.key.path) for leaf in (server, agent)]
    names = server.certificate.names if server.certificate else ()
    dialled = addresses or names[:1]
    return {address: connect(ends[0], ends[1], authority.path, address) for address in dialled}
