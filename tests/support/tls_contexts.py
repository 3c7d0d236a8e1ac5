"""Contexts of both ends for tests of TLS channels."""

import ssl

from tests.support.tunnel_pki import TunnelPki

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


def server_context(pki: TunnelPki, *, asks_certificate: bool = True) -> ssl.SSLContext:
    context = pki.authority.server_context(pki.server, ["h2"])
    if asks_certificate:
        context.load_verify_locations(pki.authority.certificate_file)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(pki: TunnelPki, *, shows_certificate: bool = True) -> ssl.SSLContext:
    return pki.authority.client_context(pki.agent if shows_certificate else None, ["h2"])
