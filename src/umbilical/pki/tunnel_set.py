"""The certificates of one tunnel: a signer, a server, the agents' shared one, and clients'; and their file names."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from umbilical.fault import PkiError
from umbilical.pki.certificate import Certificate, read_certificates
from umbilical.pki.pem import BundleError, KeyPair, is_encrypted
from umbilical.pki.profiles import Backend, KeyType, Profile, Signer, client_profile, server_profile

SIGNER_NAME: Final = "konnectivity-signer"
SIGNER_ORGANIZATION: Final = "openshift"
AUTHORITY_FILE: Final = "ca.crt"
AUTHORITY_KEY_FILE: Final = "ca.key"
DAY: Final = timedelta(days=1)
"""An installation takes less, and what is left behind of it is then worth nothing."""


class Role(Enum):
    SERVER = "server"
    AGENT = "agent"
    CLIENT = "client"
    """Whoever asks for dials over TCP; over a Unix socket nobody needs a certificate."""

    @property
    def common_name(self) -> str:
        return f"konnectivity-{self.value}"

    @property
    def usage(self) -> str:
        return "serverAuth" if self is Role.SERVER else "clientAuth"

    @property
    def certificate_file(self) -> str:
        return f"{self.value}.crt"

    @property
    def key_file(self) -> str:
        return f"{self.value}.key"


@dataclass(frozen=True)
class Leaf:
    role: Role
    key_type: KeyType
    addresses: tuple[str, ...] = ()
    """A server's, all that agents dial; nobody dials the others."""
    common_name: str = ""

    @property
    def profile(self) -> Profile:
        name = self.common_name or self.role.common_name
        if self.role is Role.SERVER:
            return server_profile(name, self.addresses, self.key_type)
        return client_profile(name, key_type=self.key_type)


@dataclass(frozen=True)
class TunnelAuthority:
    """A signer, what others are to trust of it, and how long."""

    signer: Signer
    bundle: bytes
    """ca.crt: the signer's certificate, perhaps with those above or before it."""
    certificate: Certificate

    def issue(self, leaf: Leaf, now: datetime, lifetime: timedelta) -> KeyPair:
        return self.signer.issue(leaf.profile, now, self.lifetime(now, lifetime))

    def lifetime(self, now: datetime, wanted: timedelta) -> timedelta:
        """Cut a leaf's life to the authority's: what outlives it cannot be verified anyway."""
        return min(wanted, self.certificate.time_left(now.replace(microsecond=0)))


def create_authority(backend: Backend, now: datetime, lifetime: timedelta, key_type: KeyType) -> TunnelAuthority:
    signer = backend.create(SIGNER_NAME, now, lifetime, key_type, (SIGNER_ORGANIZATION,))
    return _authority(signer, signer.pair.certificate)


def load_authority(backend: Backend, pair: KeyPair, now: datetime) -> TunnelAuthority:
    """Take up an authority that exists. Raises PkiError: it cannot sign, or what it signs would not be accepted."""
    if is_encrypted(pair.key):
        raise _unusable("its key is encrypted", "decrypt it into a file of mode 0600: openssl pkey -in KEY -out FILE")
    try:
        authority = _authority(backend.load(pair), pair.certificate)
    except BundleError as error:
        raise _unusable(str(error), "compare: openssl x509 -noout -text, openssl pkey -pubout") from None
    _check_usable(authority.certificate, now)
    return authority


def issue_set(
    authority: TunnelAuthority, leaves: Iterable[Leaf], now: datetime, lifetime: timedelta
) -> dict[str, bytes]:
    """Make the files of these leaves, certificates and keys, by name."""
    files = {}
    for leaf in leaves:
        pair = authority.issue(leaf, now, lifetime)
        files[leaf.role.certificate_file] = pair.certificate
        files[leaf.role.key_file] = pair.key
    return files


def key_type_of(certificate: Certificate) -> KeyType:
    """Return what a successor of this certificate is made with."""
    return KeyType.ECDSA_P256 if certificate.key.algorithm == "ECDSA" else KeyType.RSA_2048


def _authority(signer: Signer, bundle: bytes) -> TunnelAuthority:
    return TunnelAuthority(signer, bundle, read_certificates(signer.pair.certificate)[0])


def _check_usable(certificate: Certificate, now: datetime) -> None:
    if certificate.time_left(now) <= timedelta():
        raise _unusable(f"it expired at {certificate.not_after:%Y-%m-%d %H:%M} UTC", "take a CA that is valid")
    if certificate.not_before > now:
        why = f"it is not valid before {certificate.not_before:%Y-%m-%d %H:%M} UTC"
        raise _unusable(why, "check this machine's clock: date -u")
    if not certificate.key.is_strong:
        why = f"its key is {certificate.key.title}; FIPS asks for RSA 2048 or P-256 at least"
        raise _unusable(why, "take another CA, or leave it out and have one made")


def _unusable(why: str, remedy: str) -> PkiError:
    return PkiError("UMB151", "the CA cannot sign for the tunnel", why, remedy)
