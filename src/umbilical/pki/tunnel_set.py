"""The certificates of one tunnel (CA, server, one shared by all agents, client) and their file names."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from umbilical.fault import PkiError
from umbilical.pki.certificate import Certificate, read_certificates
from umbilical.pki.pem import BundleError, KeyPair, is_encrypted
from umbilical.pki.profiles import Backend, CertificateSigner, KeyType, Profile, client_profile, server_profile

SIGNER_NAME: Final = "konnectivity-signer"
SIGNER_ORGANIZATION: Final = "openshift"
AUTHORITY_FILE: Final = "ca.crt"
AUTHORITY_KEY_FILE: Final = "ca.key"
DAY: Final = timedelta(days=1)
"""Longer than an installation takes; files left behind are then useless."""


class TunnelRole(Enum):
    SERVER = "server"
    AGENT = "agent"
    CLIENT = "client"
    """Clients of the TCP frontend; a Unix socket needs no certificate."""

    @property
    def common_name(self) -> str:
        return f"konnectivity-{self.value}"

    @property
    def usage(self) -> str:
        return "serverAuth" if self is TunnelRole.SERVER else "clientAuth"

    @property
    def certificate_file(self) -> str:
        return f"{self.value}.crt"

    @property
    def key_file(self) -> str:
        return f"{self.value}.key"


@dataclass(frozen=True)
class TunnelLeaf:
    role: TunnelRole
    key_type: KeyType
    addresses: tuple[str, ...] = ()
    """For a server: all addresses that agents dial; else empty."""
    common_name: str = ""

    @property
    def profile(self) -> Profile:
        name = self.common_name or self.role.common_name
        if self.role is TunnelRole.SERVER:
            return server_profile(name, self.addresses, self.key_type)
        return client_profile(name, key_type=self.key_type)


@dataclass(frozen=True)
class TunnelAuthority:
    """A CA that can sign, and the bundle that verifies what it signs."""

    signer: CertificateSigner
    bundle: bytes
    """ca.crt: the CA's certificate, perhaps with its parents or predecessors."""
    certificate: Certificate

    def issue(self, leaf: TunnelLeaf, now: datetime, lifetime: timedelta) -> KeyPair:
        return self.signer.issue(leaf.profile, now, self.lifetime(now, lifetime))

    def lifetime(self, now: datetime, wanted: timedelta) -> timedelta:
        """Limit a leaf's lifetime to the CA's: afterwards it cannot be verified."""
        return min(wanted, self.certificate.time_left(now.replace(microsecond=0)))


def create_authority(backend: Backend, now: datetime, lifetime: timedelta, key_type: KeyType) -> TunnelAuthority:
    signer = backend.create(SIGNER_NAME, now, lifetime, key_type, (SIGNER_ORGANIZATION,))
    return _authority(signer, signer.pair.certificate)


def load_authority(backend: Backend, pair: KeyPair, now: datetime) -> TunnelAuthority:
    """Load an existing CA. Raises PkiError: it cannot sign, or its certificates would be refused."""
    if is_encrypted(pair.key):
        raise _unusable("its key is encrypted", "decrypt it: (umask 077; openssl pkey -in KEY -out FILE)")
    try:
        authority = _authority(backend.load(pair), pair.certificate)
    except BundleError as error:
        raise _unusable(
            str(error), "compare: openssl x509 -noout -pubkey -in CERT; openssl pkey -pubout -in KEY"
        ) from None
    _check_usable(authority.certificate, now)
    return authority


def issue_set(
    authority: TunnelAuthority, leaves: Iterable[TunnelLeaf], now: datetime, lifetime: timedelta
) -> dict[str, bytes]:
    """Issue these leaves; return certificates and keys by file name."""
    files = {}
    for leaf in leaves:
        pair = authority.issue(leaf, now, lifetime)
        files[leaf.role.certificate_file] = pair.certificate
        files[leaf.role.key_file] = pair.key
    return files


def key_type_of(certificate: Certificate) -> KeyType:
    """Return the key type for a renewal of this certificate."""
    return KeyType.ECDSA_P256 if certificate.key.algorithm == "ECDSA" else KeyType.RSA_2048


def _authority(signer: CertificateSigner, bundle: bytes) -> TunnelAuthority:
    return TunnelAuthority(signer, bundle, read_certificates(signer.pair.certificate)[0])


def _check_usable(certificate: Certificate, now: datetime) -> None:
    if certificate.time_left(now) <= timedelta():
        raise _unusable(f"it expired at {certificate.not_after:%Y-%m-%d %H:%M} UTC", "pass a CA that is valid")
    if certificate.not_before > now:
        why = f"it is not valid before {certificate.not_before:%Y-%m-%d %H:%M} UTC"
        raise _unusable(why, "check this machine's clock: date -u")
    if not certificate.key.is_strong:
        why = f"its key is {certificate.key.title}; FIPS requires at least RSA 2048 or P-256"
        raise _unusable(why, "pass another CA, or none: umbilical then creates one")


def _unusable(why: str, remedy: str) -> PkiError:
    return PkiError("UMB151", "could not sign with the given CA", why, remedy)
