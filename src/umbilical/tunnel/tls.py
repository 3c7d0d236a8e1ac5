"""SSLContexts from PEM files, whose errors start with upstream's words and end with the cause; texts of TLS errors."""

import ssl
from pathlib import Path
from typing import Final

from umbilical.fault import StartupError
from umbilical.tunnel.settings import TlsFiles, TlsPolicy

_VERSIONS: Final = {
    "VersionTLS10": ssl.TLSVersion.TLSv1,
    "VersionTLS11": ssl.TLSVersion.TLSv1_1,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}

_OPENSSL_NAMES: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}
"""Go's names of suites for TLS 1.2 and older. TLS 1.3 suites are accepted without effect, as in Go."""


def agent_listener_context(files: TlsFiles, policy: TlsPolicy) -> ssl.SSLContext:
    context = listener_context(files, policy, "h2", "agent")
    context.num_tickets = 0  # agents do not resume sessions
    return context


def listener_context(files: TlsFiles, policy: TlsPolicy, alpn: str, what: str) -> ssl.SSLContext:
    """`what` is "agent" or "frontend" and appears in errors."""
    context = noticing_truncation(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    context.minimum_version = _VERSIONS[policy.minimum_version]
    names = [_OPENSSL_NAMES[name] for name in policy.cipher_suites if name in _OPENSSL_NAMES]
    if names:
        context.set_ciphers(":".join(names))
    _load_pair(context, files, what)
    if files.authority is not None:
        _load_authority(context, files.authority, what)
        context.verify_mode = ssl.CERT_REQUIRED
        if files.revoked is not None:
            _check_lists(context, files.revoked)
    context.set_alpn_protocols([alpn])
    return context


def agent_context(files: TlsFiles, alpn: tuple[str, ...]) -> ssl.SSLContext:
    return connecting_context(files, (*alpn, "h2"), "agent")


def connecting_context(files: TlsFiles, alpn: tuple[str, ...], what: str) -> ssl.SSLContext:
    """Verify the server by CA and name; present our certificate if there is one. `what` appears in errors."""
    context = noticing_truncation(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_authority(context, files.authority or Path(), "server")
    if files.certificate is not None:
        _load_pair(context, files, what)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


def tls_name(host: str) -> str:
    """The name of a server in its certificate: without the dot at the end that only a DNS lookup knows, as Go does."""
    return host.removesuffix(".")


def noticing_truncation(context: ssl.SSLContext) -> ssl.SSLContext:
    """Report an end without close_notify as an error; Python before 3.11.4 (Debian 12) treats it as a regular end."""
    context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
    return context


def _load_pair(context: ssl.SSLContext, files: TlsFiles, what: str) -> None:
    certificate, key = files.certificate or Path(), files.key or Path()
    # Read both first: OpenSSL's errors do not name the file.
    for path in (certificate, key):
        _read(path, f"load the {what} key pair")
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        raise StartupError(
            "UMB020",
            f"cannot load the {what} key pair {certificate} and {key}",
            _reason(error),
            f"check that they belong together: openssl x509 -pubkey -noout -in {certificate}; "
            f"openssl pkey -pubout -in {key}",
        ) from error


def _no_password() -> str:
    """Without this OpenSSL would wait for a passphrase on the terminal."""
    raise ValueError("the key is encrypted")


def _load_authority(context: ssl.SSLContext, path: Path, what: str) -> None:
    text = _read(path, f"load the {what} CA certificate")
    try:
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise StartupError(
            "UMB021",
            f"cannot load the {what} CA certificate {path}",
            _reason(error),
            f"check the file: openssl x509 -text -noout -in {path}",
        ) from error
    if not context.get_ca_certs() and "BEGIN CERTIFICATE" not in text:
        raise StartupError(
            "UMB021",
            f"cannot load the {what} CA certificate {path}",
            "the file contains no PEM certificate",
            f"check the file: openssl x509 -text -noout -in {path}",
        )


def read_lists(path: Path) -> str:
    """Return the text of a file with revocation lists. Raises StartupError if it contains anything else."""
    text = _read(path, "load the certificate revocation lists")
    why = ""
    if "BEGIN CERTIFICATE" in text:
        why = "the file contains a certificate, which OpenSSL would trust as a CA"
    elif "BEGIN X509 CRL" not in text:
        why = "the file contains no list in PEM"
    if why:
        remedy = f"look at it: openssl crl -text -noout -in {path}"
        raise StartupError("UMB026", f"cannot use the certificate revocation lists in {path}", why, remedy)
    return text


def _check_lists(context: ssl.SSLContext, path: Path) -> None:
    """Refuse peers whose certificates are revoked. `cadata` takes no lists, so OpenSSL reads the file itself."""
    read_lists(path)
    try:
        context.load_verify_locations(cafile=path)
    except (ssl.SSLError, ValueError) as error:
        what = f"cannot use the certificate revocation lists in {path}"
        remedy = f"look at it: openssl crl -text -noout -in {path}"
        raise StartupError("UMB026", what, _reason(error), remedy) from error
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _read(path: Path, purpose: str) -> str:
    try:
        # SSLContext accepts ASCII only; comments between PEM blocks may contain anything.
        return path.read_text(encoding="ascii", errors="ignore")
    except OSError as error:
        unnamed = path == Path()  # an empty path; upstream's text for it
        words = "no such file or directory" if unnamed else (error.strerror or str(error)).lower()
        raise StartupError(
            "UMB022",
            f"cannot {purpose}",
            f"open {'' if unnamed else path}: {words}",
            "give the path of a readable PEM file",
        ) from error


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    return reason.replace("_", " ").lower() if isinstance(reason, str) and reason else str(error)


def is_truncation(error: Exception) -> bool:
    """The peer went without close_notify; up to Python 3.11.3 that has no class of its own."""
    return isinstance(error, ssl.SSLEOFError) or getattr(error, "reason", "") == "UNEXPECTED_EOF_WHILE_READING"


def tls_reason(error: Exception) -> str:
    """The cause without OpenSSL's source positions."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verification failed: {error.verify_message}"
    if is_truncation(error):
        return "TLS: connection ended without close_notify"
    reason = getattr(error, "reason", None)
    if isinstance(reason, str) and reason:
        return "TLS: " + reason.replace("_", " ").lower()
    return f"TLS: {error}"
