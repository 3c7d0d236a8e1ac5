"""Certificates for one test run, as files: an authority, a server for loopback, an agent and a client."""

import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from umbilical.pki.authority import Authority
from umbilical.pki.profiles import KeyType, Profile, client_profile, server_profile
from umbilical.tunnel.tls import noticing_truncation

LIFETIME: Final = timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    certificate: Path
    key: Path


class FolderAuthority:
    """Signs what a test asks for, into one folder."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder = folder
        self.certificate_file = folder / f"{name}.crt"
        # ECDSA: a run draws dozens of keys, and RSA would take seconds of it.
        self._authority = Authority.create(name, datetime.now(UTC), LIFETIME, KeyType.ECDSA_P256)
        self.certificate_file.write_bytes(self._authority.certificate_pem)

    def serving(self, name: str, hosts: Sequence[str] = ("127.0.0.1", "localhost")) -> Pair:
        return self._issue(name, server_profile(name, hosts, KeyType.ECDSA_P256))

    def client(self, name: str, organizations: Sequence[str] = ()) -> Pair:
        return self._issue(name, client_profile(name, organizations, KeyType.ECDSA_P256))

    def client_context(self, pair: Pair | None, alpn: Sequence[str] = ()) -> ssl.SSLContext:
        """Return a context that trusts this authority and shows the pair."""
        context = noticing_truncation(ssl.create_default_context(cafile=str(self.certificate_file)))
        if pair is not None:
            context.load_cert_chain(str(pair.certificate), str(pair.key))
        if alpn:
            context.set_alpn_protocols(list(alpn))
        return context

    def server_context(self, pair: Pair, alpn: Sequence[str] = ()) -> ssl.SSLContext:
        context = noticing_truncation(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        context.load_cert_chain(str(pair.certificate), str(pair.key))
        if alpn:
            context.set_alpn_protocols(list(alpn))
        return context

    def revocation_list(self, pairs: Iterable[Pair], made: datetime, life: timedelta) -> bytes:
        """A list in PEM that revokes the certificates of these pairs."""
        key = serialization.load_pem_private_key(self._authority.pair.key, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        signer = x509.load_pem_x509_certificate(self._authority.certificate_pem)
        builder = x509.CertificateRevocationListBuilder().issuer_name(signer.subject)
        builder = builder.last_update(made).next_update(made + life)
        for pair in pairs:
            number = x509.load_pem_x509_certificate(pair.certificate.read_bytes()).serial_number
            entry = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(made)
            builder = builder.add_revoked_certificate(entry.build())
        return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def _issue(self, name: str, profile: Profile) -> Pair:
        issued = self._authority.issue(profile, datetime.now(UTC), LIFETIME)
        pair = Pair(self.folder / f"{name}.crt", self.folder / f"{name}.key")
        pair.certificate.write_bytes(issued.certificate)
        pair.key.touch(mode=0o600)
        pair.key.write_bytes(issued.key)
        return pair


@dataclass(frozen=True)
class TunnelPki:
    """What a pair and its clients need."""

    authority: FolderAuthority
    server: Pair
    agent: Pair
    client: Pair


def make_tunnel_pki(folder: Path, server_hosts: Sequence[str] = ("127.0.0.1", "localhost")) -> TunnelPki:
    authority = FolderAuthority(folder)
    return TunnelPki(
        authority,
        authority.serving("proxy-server", server_hosts),
        authority.client("proxy-agent"),
        authority.client("proxy-client"),
    )
