"""Certificate files that are replaced while somebody uses them, and handshakes in memory to see who shows what."""

import os
import shutil
import ssl
from pathlib import Path
from typing import Final

from tests.support.tunnel_pki import FolderAuthority, Pair

from umbilical.tunnel.settings import TlsFiles


class LiveFiles:
    """One certificate, its key and a CA bundle at paths that stay; each write replaces the file as `mv` does."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.certificate: Final = folder / "tls.crt"
        self.key: Final = folder / "tls.key"
        self.authority: Final = folder / "ca.crt"
        self.files: Final = TlsFiles(self.certificate, self.key, self.authority)

    def install(self, pair: Pair, *authorities: FolderAuthority) -> None:
        self.install_pair(pair)
        self.trust(*authorities)

    def install_pair(self, pair: Pair) -> None:
        replace(self.certificate, pair.certificate.read_bytes())
        replace(self.key, pair.key.read_bytes())

    def trust(self, *authorities: FolderAuthority) -> None:
        replace(self.authority, b"".join(authority.certificate_file.read_bytes() for authority in authorities))


def replace(path: Path, content: bytes) -> None:
    fresh = path.with_name(f".{path.name}.new")
    fresh.touch(mode=0o600)
    fresh.write_bytes(content)
    os.replace(fresh, path)


class MountedSecret:
    """A directory as the kubelet mounts a Secret: links to `..data/NAME`, and `..data` a link that is turned."""

    def __init__(self, folder: Path) -> None:
        self.folder: Final = folder
        self._versions = 0
        folder.mkdir()

    def publish(self, **content: Path) -> None:
        """Make all new contents visible at once; names are given with `_` for `.`."""
        self._versions += 1
        version = self.folder / f"..2026_11_15_{self._versions}"
        version.mkdir()
        for name, source in content.items():
            shutil.copyfile(source, version / name.replace("_", "."))
        before = list(self.folder.glob("..2026_*"))
        turned = self.folder / "..data_tmp"
        turned.symlink_to(version.name)
        os.replace(turned, self.folder / "..data")
        for name in content:
            link = self.folder / name.replace("_", ".")
            if not link.is_symlink():
                link.symlink_to(f"..data/{link.name}")
        for old in before:
            if old != version:
                shutil.rmtree(old)


class Ends:
    """A client and a server that shake hands and talk through memory."""

    def __init__(
        self, listener: ssl.SSLContext, dialler: ssl.SSLContext, session: ssl.SSLSession | None = None
    ) -> None:
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server: Final = listener.wrap_bio(to_server, to_client, server_side=True)
        self.client: Final = dialler.wrap_bio(to_client, to_server, server_hostname="localhost", session=session)
        for _ in range(4):  # each side's turn, until both are done
            if _step(self.client) & _step(self.server):
                break
        self.echo(b"first")  # which also brings the client its tickets

    def echo(self, octets: bytes) -> bytes:
        self.client.write(octets)
        self.server.write(self.server.read(len(octets)))
        return self.client.read(len(octets))

    def shown(self) -> bytes | None:
        """The server's certificate, as the client saw it."""
        return self.client.getpeercert(binary_form=True)


def _step(end: ssl.SSLObject) -> bool:
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def der(path: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(path.read_text())
