"""The hard way's certificates in other hands: OpenSSL judges every chain as we do, and a real etcd serves with them."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
from tests.support import hardway
from tests.support.hardway_lint import Subject, copied
from tests.support.hardway_pki import reissue, rendered
from tests.support.static_processes import peer
from tests.support.tunnel_directories import openssl_verifies
from tests.support.tunnel_pair import wait_until

from umbilical.assets.hardway.certificates import anchor, cluster_bundles, cluster_rows, render_certificates
from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.inputs import Inputs
from umbilical.assets.tree import AssetTree
from umbilical.host.errors import HostError
from umbilical.host.files import make_directory, write_file
from umbilical.host.processes import Child, run, start
from umbilical.pki.certificate import read_certificates
from umbilical.pki.chain import chain_trouble
from umbilical.pki.control_plane_set import Kind
from umbilical.pki.profiles import Usage

PURPOSES: Final = {Usage.SERVER: "sslserver", Usage.CLIENT: "sslclient"}
WAIT_SECONDS: Final = 60.0


def lay(subject: Subject, folder: Path) -> Path:
    for asset in subject.assets.values():
        if asset.path.startswith("tls/"):
            make_directory((folder / asset.path).parent)
            write_file(folder / asset.path, asset.content, asset.mode)
    return folder


@pytest.mark.real("openssl")
@pytest.mark.parametrize("profile", Profile)
def test_openssl_verifies_every_certificate_with_what_will_check_it(profile: Profile, tmp_path: Path) -> None:
    folder = lay(rendered(profile), tmp_path)
    time = ("-attime", str(int(hardway.NOW.timestamp())))
    checked = 0
    for row in cluster_rows(hardway.cluster(profile)):
        for trusted in row.verified_by:
            for usage in row.usages:
                bundle, leaf = folder / anchor(trusted), folder / f"tls/{row.id}.crt"
                assert openssl_verifies(bundle, leaf, *time, "-purpose", PURPOSES[usage]), f"{row.id}: {usage}"
                checked += 1
    assert checked > 20


@pytest.mark.real("openssl")
def test_openssl_and_we_agree_about_every_leaf_every_bundle_and_both_purposes(tmp_path: Path) -> None:
    subject = rendered(Profile.KUBERNETES, 1, 0)
    folder = lay(subject, tmp_path)
    time = ("-attime", str(int(hardway.NOW.timestamp())))
    verdicts = set()
    for row in (row for row in cluster_rows(subject.cluster) if row.kind is Kind.LEAF):
        leaf = folder / f"tls/{row.id}.crt"
        for trusted in cluster_bundles(subject.cluster):
            bundle = folder / anchor(trusted.value)
            for usage, purpose in PURPOSES.items():
                certificates = read_certificates(bundle.read_bytes())
                ours = chain_trouble(read_certificates(leaf.read_bytes())[0], certificates, usage, hardway.NOW) == ""
                assert openssl_verifies(bundle, leaf, *time, "-purpose", purpose) == ours, f"{row.id} {trusted} {usage}"
                verdicts.add(ours)
    assert verdicts == {True, False}


@dataclass
class Etcd:
    """A member on loopback, and its client."""

    folder: Path
    port: int
    child: Child

    def says_healthy(self, pair: str) -> bool:
        """Ask as the holder of a pair."""
        tls = self.folder / "tls"
        trust = [f"--cacert={tls}/bundles/etcd-ca-bundle.crt", f"--cert={tls}/{pair}.crt", f"--key={tls}/{pair}.key"]
        try:
            run([peer("etcdctl"), f"--endpoints=https://localhost:{self.port}", *trust, "endpoint", "health"], 60)
        except HostError:
            return False
        return True


@contextmanager
def etcd(subject: Subject, folder: Path) -> Iterator[Etcd]:
    lay(subject, folder)
    tls, (port, peer_port) = folder / "tls", _free_ports()
    here = f"https://127.0.0.1:{peer_port}"
    flags = [
        "--name=etcd-bootstrap",
        f"--data-dir={folder / 'data'}",
        f"--listen-client-urls=https://127.0.0.1:{port}",
        f"--advertise-client-urls=https://127.0.0.1:{port}",
        f"--listen-peer-urls={here}",
        f"--initial-advertise-peer-urls={here}",
        f"--initial-cluster=etcd-bootstrap={here}",
        "--client-cert-auth=true",
        "--peer-client-cert-auth=true",
        *(f"--{kind}trusted-ca-file={tls}/bundles/etcd-ca-bundle.crt" for kind in ("", "peer-")),
        *(f"--{end}-file={tls}/etcd-serving-bootstrap.{ending}" for end, ending in (("cert", "crt"), ("key", "key"))),
        *(f"--peer-{end}-file={tls}/etcd-peer-bootstrap.{ending}" for end, ending in (("cert", "crt"), ("key", "key"))),
    ]
    with start([peer("etcd"), *flags], folder / "etcd.log", name="etcd") as child:
        yield Etcd(folder, port, child)


def _free_ports() -> list[int]:
    """Two that nobody has; both are held until both are known."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return [one.getsockname()[1], other.getsockname()[1]]


@pytest.fixture
def today() -> Subject:
    """Certificates that are good now: etcd looks at its own clock."""
    of = hardway.cluster(Profile.KUBERNETES, 1, 0)
    given = Inputs(
        of, hardway.certificates(of, datetime.now(UTC)), hardway.payload(Profile.KUBERNETES), hardway.identity()
    )
    return Subject(of, {asset.path: asset for asset in render_certificates(given, AssetTree())})


@pytest.mark.real("etcd", "etcdctl")
def test_etcd_is_healthy_for_its_client_and_for_itself(today: Subject, tmp_path: Path) -> None:
    with etcd(today, tmp_path) as member:
        wait_until(lambda: member.says_healthy("etcd-client"), "etcd to be healthy", WAIT_SECONDS)
        # The pair that it dials its own port with.
        assert member.says_healthy("etcd-serving-bootstrap")
        assert "incompatible key usage" not in member.child.log_text()


@pytest.mark.real("etcd", "etcdctl")
def test_with_a_certificate_for_servers_alone_etcd_refuses_itself_while_clients_see_nothing(
    today: Subject, tmp_path: Path
) -> None:
    broken = copied(today)
    reissue(broken, "etcd-serving-bootstrap", now=datetime.now(UTC), usages=(Usage.SERVER,))
    with etcd(broken, tmp_path) as member:
        wait_until(lambda: member.says_healthy("etcd-client"), "etcd to be healthy", WAIT_SECONDS)
        assert not member.says_healthy("etcd-serving-bootstrap")
        complaint = "incompatible key usage"
        wait_until(lambda: complaint in member.child.log_text(), f"the log to say {complaint}", WAIT_SECONDS)
