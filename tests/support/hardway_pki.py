"""Certificates of a rendered cluster with one thing amiss: issued again by the tree's own signers, or forged whole."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from tests.support import hardway
from tests.support.hardway_lint import Subject

from umbilical.hardway.artifacts import layout
from umbilical.pki.authority import Authority, decode_certificates, decode_own_key, encode_pair
from umbilical.pki.certificate import Certificate, read_certificates
from umbilical.pki.pem import KeyPair
from umbilical.pki.profiles import KeyType, Profile, Usage

DAY: Final = timedelta(days=1)


def pair(subject: Subject, row_id: str) -> KeyPair:
    files = subject.assets
    return KeyPair(files[layout.certificate(row_id)].content, files[layout.key(row_id)].content)


def certificate(subject: Subject, row_id: str) -> Certificate:
    return read_certificates(pair(subject, row_id).certificate)[0]


def put(subject: Subject, row_id: str, made: KeyPair) -> None:
    subject.write(layout.certificate(row_id), made.certificate)
    subject.write(layout.key(row_id), made.key)


def reissue(
    subject: Subject, row_id: str, now: datetime = hardway.NOW, life: timedelta = 2 * DAY, **changes: Any
) -> KeyPair:
    """Have a leaf signed again by who signed it, with fields of its profile changed, and put it in its place."""
    old = certificate(subject, row_id)
    signer = Authority.load(pair(subject, old.issuer_name))
    made = signer.issue(replace(profile_of(old), **changes), now, life)
    put(subject, row_id, made)
    return made


def profile_of(old: Certificate) -> Profile:
    groups = tuple(value for kind, value in old.subject if kind == "O")
    usages = tuple(map(Usage, old.usages))
    return Profile(old.common_name, usages, groups, old.dns_names, old.ip_addresses, KeyType.ECDSA_P256)


@dataclass(frozen=True)
class Forgery:
    """A certificate that no back end of ours would make."""

    common_name: str
    is_authority: bool = False
    path_length: int | None = None
    usages: tuple[Usage, ...] = ()
    dns_names: tuple[str, ...] = ()
    without: Collection[type[x509.ExtensionType]] = ()
    softened: Collection[type[x509.ExtensionType]] = ()
    """Not critical, though they should be."""
    serial: int = 0

    def signed_by(self, signer: KeyPair | None, now: datetime = hardway.NOW, life: timedelta = 2 * DAY) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self.common_name)])
        authority = None if signer is None else decode_certificates(signer.certificate)[0]
        signing_key = key if signer is None else decode_own_key(signer.key)
        builder = (
            x509.CertificateBuilder()
            .serial_number(self.serial or x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + life)
            .subject_name(name)
            .issuer_name(name if authority is None else authority.subject)
            .public_key(key.public_key())
        )
        for extension in self._extensions(key, signing_key, is_root=signer is None):
            if type(extension) not in self.without:
                builder = builder.add_extension(extension, critical=self._is_critical(extension))
        return encode_pair(builder.sign(signing_key, hashes.SHA256()), key)

    def _is_critical(self, extension: x509.ExtensionType) -> bool:
        strict = isinstance(extension, x509.BasicConstraints | x509.KeyUsage)
        return strict and type(extension) not in self.softened

    def _extensions(self, key: Any, signing_key: Any, *, is_root: bool) -> list[x509.ExtensionType]:
        found: list[x509.ExtensionType] = [
            x509.BasicConstraints(ca=self.is_authority, path_length=self.path_length),
            x509.KeyUsage(True, False, False, False, False, self.is_authority, self.is_authority, False, False),
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()),
        ]
        if not is_root:
            found.append(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()))
        if self.usages:
            oids = {Usage.SERVER: ExtendedKeyUsageOID.SERVER_AUTH, Usage.CLIENT: ExtendedKeyUsageOID.CLIENT_AUTH}
            found.append(x509.ExtendedKeyUsage([oids[usage] for usage in self.usages]))
        if self.dns_names:
            found.append(x509.SubjectAlternativeName([x509.DNSName(name) for name in self.dns_names]))
        return found


def forge(subject: Subject, row_id: str, **odd: Any) -> None:
    """Put a forgery in a row's place: of the same name and signer."""
    old = certificate(subject, row_id)
    signer = None if old.is_self_issued else pair(subject, old.issuer_name)
    usages = tuple(map(Usage, old.usages))
    put(subject, row_id, Forgery(old.common_name, old.is_authority, usages=usages, **odd).signed_by(signer))


def edit_objects(subject: Subject, kind: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Change every object of a kind among the manifests."""
    for path in [path for path in subject.assets if path.startswith(f"{layout.MANIFESTS}/")]:
        documents = list(yaml.safe_load_all(subject.assets[path].content))
        if any(one["kind"] == kind for one in documents):
            for one in documents:
                if one["kind"] == kind:
                    change(one)
            subject.write(path, yaml.safe_dump_all(documents, sort_keys=False).encode())


def rename_subject(old: str, new: str) -> Callable[[Subject], None]:
    """Bind somebody else, wherever a user, group or service account of this name is bound."""

    def change(binding: dict[str, Any]) -> None:
        for one in binding.get("subjects") or ():
            if one["name"] == old:
                one["name"] = new

    return lambda subject: edit_objects(subject, "ClusterRoleBinding", change)


def pods(subject: Subject, program: str) -> list[str]:
    """The paths of a program's static pods."""
    folders = (layout.STATIC_PODS, layout.LATE_STATIC_PODS)
    return [path for path in subject.assets if path.startswith(folders) and path.rpartition("/")[2].startswith(program)]
