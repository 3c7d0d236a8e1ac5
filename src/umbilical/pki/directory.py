"""The facts of a directory of tunnel certificates, including TLS handshakes in memory with the library that server and
agents use.
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
from umbilical.pki.tunnel_set import AUTHORITY_FILE, AUTHORITY_KEY_FILE, TunnelRole

# X509_V_FLAG_NO_CHECK_TIME of x509_vfy.h; Python has no name for it.
_IGNORE_TIME: Final = 0x200000
_WRONG_PURPOSE: Final = 26
_ROUNDS: Final = 10
"""A handshake takes three rounds."""


@dataclass(frozen=True)
class PairFiles:
    certificate: Path
    key: Path


@dataclass(frozen=True)
class CertificateRefusal:
    why: str
    is_purpose: bool = False
    """The key usage is wrong: OpenSSL then does not check the chain."""


def belongs(pair: PairFiles) -> CertificateRefusal | None:
    """Check that a key belongs to its certificate, by loading them as server and agents do."""
    try:
        _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), pair)
    except (OSError, ValueError) as error:
        return _refusal(error)
    return None


def check_server_chain(server: PairFiles, authority: Path) -> CertificateRefusal | None:
    """Check a server's chain and usage as a client does, ignoring time and name."""
    try:
        client = _client(authority, None)
        client.check_hostname = False
        client.verify_flags |= _IGNORE_TIME
        return _handshake(_server(server, None), client, None)
    except (OSError, ValueError) as error:
        return _refusal(error)


def check_client_chain(pair: PairFiles, authority: Path) -> CertificateRefusal | None:
    """Check the chain and usage of an agent or client as a server does, ignoring time."""
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


def connect(server: PairFiles, client: PairFiles, authority: Path, address: str) -> CertificateRefusal | None:
    """Run a mutual TLS handshake for `address` with all checks on."""
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
    # Without a password OpenSSL would prompt on the terminal.
    context.load_cert_chain(pair.certificate, pair.key, password=lambda: "")


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext, address: str | None) -> CertificateRefusal | None:
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
    return CertificateRefusal("the handshake did not complete")


def _finished(end: ssl.SSLObject) -> bool:
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def _refusal(error: Exception) -> CertificateRefusal:
    if isinstance(error, ssl.SSLCertVerificationError):
        return CertificateRefusal(error.verify_message, error.verify_code == _WRONG_PURPOSE)
    if isinstance(error, ssl.SSLError):
        return CertificateRefusal((error.reason or str(error)).replace("_", " ").lower())
    if isinstance(error, OSError):
        return CertificateRefusal(error.strerror or str(error))
    return CertificateRefusal(str(error))


@dataclass(frozen=True)
class CertificateFile:
    path: Path
    certificates: tuple[Certificate, ...] = ()
    trouble: str = ""
    """Why there is no certificate."""

    @property
    def exists(self) -> bool:
        return bool(self.certificates) or self.path.exists()


@dataclass(frozen=True)
class KeyFile:
    path: Path
    mode: int | None
    """Permission bits; None if the file does not exist."""
    refusal: CertificateRefusal | None
    """Why it does not belong to its certificate."""


@dataclass(frozen=True)
class LeafFacts:
    role: TunnelRole
    file: CertificateFile
    key: KeyFile
    chain: CertificateRefusal | None
    """Why the other side would refuse it, time and names ignored."""

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
    leaves: Mapping[TunnelRole, LeafFacts]
    connections: Mapping[str, CertificateRefusal | None]
    """Result of an agent-server handshake by dialled address; None: accepted."""

    def issuer_of(self, leaf: Certificate) -> Certificate | None:
        """Find the CA by the issuer that the leaf names, without checking the signature."""
        named = [one for one in self.authority.certificates if one.subject == leaf.issuer]
        exact = [one for one in named if one.key_identifier == leaf.authority_identifier]
        return next(iter(exact or named), None)


def read_directory(folder: Path, roles: Iterable[TunnelRole], addresses: Iterable[str]) -> DirectoryFacts:
    """Gather the facts. Without addresses, the handshake uses the first name in the server's certificate."""
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
        hint = "it holds a private key, not a certificate" if holds_key(pem) else str(error)
        return CertificateFile(path, trouble=hint)


def _leaf(folder: Path, role: TunnelRole, authority: CertificateFile) -> LeafFacts:
    file = read_certificate_file(folder / role.certificate_file)
    key = _key(folder / role.key_file, file)
    pair = PairFiles(file.path, key.path)
    if not file.certificates or key.refusal or not authority.certificates:
        return LeafFacts(role, file, key, None)
    check = check_server_chain if role is TunnelRole.SERVER else check_client_chain
    return LeafFacts(role, file, key, check(pair, authority.path))


def _key(path: Path, certificate: CertificateFile) -> KeyFile:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        return KeyFile(path, None, CertificateRefusal(error.strerror or str(error)))
    if not certificate.certificates:
        return KeyFile(path, mode, None)
    return KeyFile(path, mode, belongs(PairFiles(certificate.path, path)))


def _authority_key(path: Path, bundle: CertificateFile) -> KeyFile:
    """Compare the key with each certificate of the bundle: one match is enough."""
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
    leaves: Mapping[TunnelRole, LeafFacts], authority: CertificateFile, addresses: tuple[str, ...]
) -> dict[str, CertificateRefusal | None]:
    server, agent = leaves.get(TunnelRole.SERVER), leaves.get(TunnelRole.AGENT)
    if server is None or agent is None or not (server.is_loadable and agent.is_loadable and authority.certificates):
        return {}
    ends = [PairFiles(leaf.file.path, leaf.key.path) for leaf in (server, agent)]
    names = server.certificate.names if server.certificate else ()
    dialled = addresses or names[:1]
    return {address: connect(ends[0], ends[1], authority.path, address) for address in dialled}
