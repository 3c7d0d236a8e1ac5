"""What a directory of a tunnel's certificates is, seen as its server and its agents will see it. Facts, no verdicts."""

import stat
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from umbilical.pki import rehearsal
from umbilical.pki.certificate import Certificate, read_certificates
from umbilical.pki.pem import BundleError, encode_blocks, holds_key
from umbilical.pki.rehearsal import PairFiles, Refusal
from umbilical.pki.tunnel_set import AUTHORITY_FILE, AUTHORITY_KEY_FILE, Role


@dataclass(frozen=True)
class CertificateFile:
    """A file that should hold certificates."""

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
    walk = rehearsal.walk_server_chain if role is Role.SERVER else rehearsal.walk_client_chain
    return LeafFacts(role, file, key, walk(pair, authority.path))


def _key(path: Path, certificate: CertificateFile) -> KeyFile:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        return KeyFile(path, None, Refusal(error.strerror or str(error)))
    if not certificate.certificates:
        return KeyFile(path, mode, None)
    return KeyFile(path, mode, rehearsal.belongs(PairFiles(certificate.path, path)))


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
            refusals.append(rehearsal.belongs(PairFiles(alone, path)))
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
    return {address: rehearsal.connect(ends[0], ends[1], authority.path, address) for address in dialled}
