"""The back end that uses the host's `openssl` program: for hosts in FIPS mode.

`openssl ca` signs: before 3.4 no other subcommand can set notBefore. Keys go through pipes only, never through
arguments or files; the scratch directory holds requests, certificates and configuration.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from umbilical.fault import PkiError
from umbilical.pki.certificate import Certificate, PublicKey, read_certificates, read_public_key
from umbilical.pki.pem import BundleError, KeyPair, certificate_blocks, encode_blocks, public_key_block
from umbilical.pki.profiles import BACKDATE, MAX_COMMON_NAME, NOT_ITS_KEY, KeyType, Profile

OpensslRunner = Callable[[Sequence[str], bytes], bytes]
"""Takes a command and its standard input; returns standard output. Raises a Fault when the command fails."""

_STDIN: Final = "/dev/stdin"
_KEY_OPTIONS: Final = {
    KeyType.RSA_2048: ("RSA", "rsa_keygen_bits:2048"),
    KeyType.ECDSA_P256: ("EC", "ec_paramgen_curve:P-256"),
}
# OpenSSL 1.1.1 and 3.x add different default extensions, so every extension is explicit.
_CONFIGURATION: Final = """\
[ca]
default_ca = authority
[authority]
database = {folder}/index.txt
new_certs_dir = {folder}
rand_serial = yes
unique_subject = no
default_md = sha256
policy = policy
preserve = yes
[policy]
organizationName = optional
commonName = supplied
[req]
prompt = no
distinguished_name = subject
string_mask = utf8only
utf8 = yes
[subject]
{subject}
[extensions]
{extensions}
[names]
{names}
"""
# Lifts the RFC 5280 limit of the common name, which service account names exceed: `profiles.MAX_COMMON_NAME`.
_LONG_NAMES: Final = """\
openssl_conf = start
[start]
stbl_section = lengths
[lengths]
commonName = min:1,max:256
"""


class Openssl:
    """Creates and loads CAs. The caller creates `scratch` with mode 0700 and removes it."""

    def __init__(self, run: OpensslRunner, scratch: Path, program: str = "openssl") -> None:
        self._run = run
        self._scratch = scratch
        self._program = program

    def create(
        self,
        common_name: str,
        now: datetime,
        lifetime: timedelta,
        key_type: KeyType = KeyType.RSA_2048,
        organizations: Iterable[str] = (),
    ) -> "OpensslAuthority":
        key = self.generate_key(key_type)
        extensions = [
            "basicConstraints = critical,CA:TRUE",
            "keyUsage = critical,digitalSignature,keyCertSign,cRLSign",
            "subjectKeyIdentifier = hash",
        ]
        self._configure(common_name, organizations, extensions, [])
        self._request(key)
        certificate = self._sign(["-selfsign"], key, now, lifetime)
        return OpensslAuthority(self, KeyPair(certificate, key), read_certificates(certificate)[0])

    def load(self, pair: KeyPair) -> "OpensslAuthority":
        public = self._public_key(pair.key)
        certificates = read_certificates(pair.certificate)
        certificate = next((one for one in certificates if one.key.encoded == public.encoded), None)
        if certificate is None:
            raise BundleError(NOT_ITS_KEY)
        if not certificate.is_authority:
            raise BundleError(f"{certificate.common_name} may not sign certificates")
        return OpensslAuthority(self, KeyPair(encode_blocks([certificate.encoded]), pair.key), certificate)

    def generate_key(self, key_type: KeyType) -> bytes:
        algorithm, option = _KEY_OPTIONS[key_type]
        return self._openssl(["genpkey", "-algorithm", algorithm, "-pkeyopt", option])

    def issue(
        self, authority: KeyPair, issuer: Certificate, profile: Profile, now: datetime, lifetime: timedelta
    ) -> KeyPair:
        """Generate a key for the profile and sign its certificate."""
        key = self.generate_key(profile.key_type)
        extensions = _leaf_extensions(profile, issuer)
        self._configure(profile.common_name, profile.organizations, extensions, _names(profile))
        self._request(key)
        self._file("issuer.crt").write_bytes(authority.certificate)
        certificate = self._sign(["-cert", str(self._file("issuer.crt"))], authority.key, now, lifetime)
        return KeyPair(certificate, key)

    def _configure(
        self, common_name: str, organizations: Iterable[str], extensions: list[str], names: list[str]
    ) -> None:
        is_long = len(common_name.encode()) > MAX_COMMON_NAME
        text = (_LONG_NAMES if is_long else "") + _CONFIGURATION.format(
            folder=_escaped(str(self._scratch)),
            subject="\n".join(_subject(common_name, organizations)),
            extensions="\n".join(extensions),
            names="\n".join(names),
        )
        self._file("openssl.cnf").write_text(text, encoding="utf-8")
        self._file("index.txt").touch()

    def _request(self, key: bytes) -> None:
        options = ["-config", str(self._file("openssl.cnf")), "-sha256"]
        request = self._openssl(["req", "-new", "-key", _STDIN, *options], key)
        self._file("request.csr").write_bytes(request)

    def _sign(self, authority: list[str], key: bytes, now: datetime, lifetime: timedelta) -> bytes:
        start = now.astimezone(UTC).replace(microsecond=0)
        files = ["-config", str(self._file("openssl.cnf")), "-keyfile", _STDIN, "-in", str(self._file("request.csr"))]
        dates = ["-startdate", _moment(start - BACKDATE), "-enddate", _moment(start + lifetime)]
        command = ["ca", "-batch", "-notext", *files, *authority, "-extensions", "extensions", *dates]
        printed = self._openssl(command, key)
        try:
            return encode_blocks(certificate_blocks(printed)[:1])
        except BundleError as error:
            raise _no_answer("ca", str(error)) from error

    def _public_key(self, key: bytes) -> PublicKey:
        """Derive the public key. The empty passphrase keeps openssl from prompting."""
        try:
            printed = self._openssl(["pkey", "-in", _STDIN, "-passin", "pass:", "-pubout"], key)
        except PkiError as error:
            raise BundleError(f"no readable private key: {error.why}") from None
        return read_public_key(public_key_block(printed))

    def _openssl(self, arguments: Sequence[str], stdin: bytes = b"") -> bytes:
        return self._run([self._program, *arguments], stdin)

    def _file(self, name: str) -> Path:
        return self._scratch / name


class OpensslAuthority:
    """A CA certificate with its key; signs with the program."""

    def __init__(self, openssl: Openssl, pair: KeyPair, certificate: Certificate) -> None:
        self._openssl = openssl
        self._certificate = certificate
        self.pair = pair

    def issue(self, profile: Profile, now: datetime, lifetime: timedelta) -> KeyPair:
        return self._openssl.issue(self.pair, self._certificate, profile, now, lifetime)


def _subject(common_name: str, organizations: Iterable[str]) -> list[str]:
    # The number before the dot makes the keys unique.
    groups = [f"{number}.O = {_escaped(name)}" for number, name in enumerate(organizations)]
    return [*groups, f"CN = {_escaped(common_name)}"]


def _leaf_extensions(profile: Profile, issuer: Certificate) -> list[str]:
    # An ECDSA key cannot encipher another key: RFC 8813 §3.
    enciphers = ",keyEncipherment" if profile.key_type is KeyType.RSA_2048 else ""
    lines = [
        "basicConstraints = critical,CA:FALSE",
        f"keyUsage = critical,digitalSignature{enciphers}",
        f"extendedKeyUsage = {','.join(usage.value for usage in profile.usages)}",
        "subjectKeyIdentifier = hash",
        f"authorityKeyIdentifier = DER:{_authority_identifier(issuer)}",
    ]
    return [*lines, "subjectAltName = @names"] if _names(profile) else lines


def _authority_identifier(issuer: Certificate) -> str:
    """Encode the extension: `keyid` fails for an issuer without a subjectKeyIdentifier."""
    identifier = issuer.key_identifier or issuer.key.identifier
    inner = bytes([0x80, len(identifier)]) + identifier
    return (bytes([0x30, len(inner)]) + inner).hex(":")


def _names(profile: Profile) -> list[str]:
    names = [f"DNS.{number} = {_escaped(name)}" for number, name in enumerate(profile.dns_names)]
    return names + [f"IP.{number} = {address}" for number, address in enumerate(profile.ip_addresses)]


def _escaped(value: str) -> str:
    """Escape a configuration value. Raises PkiError: it cannot be escaped."""
    if not value or not value.isprintable() or value != value.strip():
        why = "it is empty, begins or ends with a space, or holds a control character"
        raise PkiError("UMB150", f"{value!r} is not valid in a certificate", why, "use printable characters")
    return "".join(f"\\{letter}" if letter in "\\$#\"'`" else letter for letter in value)


def _moment(when: datetime) -> str:
    return when.strftime("%Y%m%d%H%M%SZ")


def _no_answer(command: str, why: str) -> PkiError:
    return PkiError("UMB154", f"openssl {command} printed no certificate", why, "openssl version -a")
