"""Certificates that are wrong in one way: their dates, their address, their authority."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.support.tunnel_pki import Pair, TunnelPki

from umbilical.pki.authority import Authority
from umbilical.pki.pem import KeyPair
from umbilical.pki.profiles import KeyType, client_profile, server_profile

DAY = timedelta(days=1)
HOSTS = ("127.0.0.1", "localhost")


class OddPki:
    """An authority of three days, yesterday's among them, so that only the leaf can be out of date."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = datetime.now(UTC)
        self.authority = Authority.create("odd", self.now - DAY, 3 * DAY, KeyType.ECDSA_P256)
        self.authority_file = folder / "odd-ca.crt"
        self.authority_file.write_bytes(self.authority.certificate_pem)

    def server(self, *, starts: timedelta = timedelta(), life: timedelta = DAY, hosts: Sequence[str] = HOSTS) -> Pair:
        profile = server_profile("proxy-server", hosts, KeyType.ECDSA_P256)
        return self._write("server", self.authority.issue(profile, self.now + starts, life))

    def agent(self, *, starts: timedelta = timedelta(), life: timedelta = DAY) -> Pair:
        profile = client_profile("proxy-agent", (), KeyType.ECDSA_P256)
        return self._write("agent", self.authority.issue(profile, self.now + starts, life))

    def tunnel(self, good: TunnelPki, server: Pair, agent: Pair) -> TunnelPki:
        """What a stage needs, with this authority on both sides."""
        authority = replace_certificate_file(good, self.authority_file)
        return replace(authority, server=server, agent=agent)

    def _write(self, name: str, issued: KeyPair) -> Pair:
        pair = Pair(self.folder / f"{name}.crt", self.folder / f"{name}.key")
        pair.certificate.write_bytes(issued.certificate)
        pair.key.write_bytes(issued.key)
        return pair


def replace_certificate_file(pki: TunnelPki, path: Path) -> TunnelPki:
    from copy import copy

    authority = copy(pki.authority)
    authority.certificate_file = path
    return replace(pki, authority=authority)
