"""The checks of `pki verify`: a good directory passes all, and each broken one fails in the right place."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from tests.support.tunnel_directories import ADDRESS, make_files, new_authority, now

from umbilical.checks.check import Finding, Outcome
from umbilical.cli.pki_checks import HEADINGS, Question, findings
from umbilical.cli.pki_files import write_directory
from umbilical.pki.authority import Authority
from umbilical.pki.bundle import encode_pair
from umbilical.pki.directory import look_at
from umbilical.pki.pem import KeyPair
from umbilical.pki.profiles import KeyType, server_profile
from umbilical.pki.tunnel_set import DAY, Role, load_authority

HOUR = timedelta(hours=1)


def judged(
    folder: Path, *addresses: str, when: datetime | None = None, min_left: timedelta = HOUR / 2
) -> dict[str, Finding]:
    facts = look_at(folder, Role, addresses)
    found = findings(Question(facts, when or now(), addresses, min_left))
    return {finding.id: finding for finding in found}


def having(found: dict[str, Finding], outcome: Outcome) -> set[str]:
    return {name for name, finding in found.items() if finding.outcome is outcome}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path / "pki", make_files(new_authority(), addresses=(ADDRESS, "::1", "*.apps.example.com")))


def written(folder: Path, files: dict[str, bytes]) -> Path:
    write_directory(folder, files, overwrite=True)
    return folder


def test_a_good_directory_passes_every_check(folder: Path) -> None:
    found = judged(folder, ADDRESS, "::1", "a.apps.example.com")
    assert having(found, Outcome.PASSED) == set(found)
    assert {name.partition(".")[0] for name in found} == set(HEADINGS)


def test_words_are_whole_and_name_the_directory(folder: Path) -> None:
    for finding in judged(folder).values():
        assert finding.title
        assert finding.why
        assert finding.fix
        assert "DIR" not in finding.fix
    assert str(folder) in judged(folder)["server.chain"].fix


@dataclass(frozen=True)
class Damage:
    """How a directory is broken, what must fail by it, and what may not be judged any more."""

    inflict: Callable[[Path], object]
    failed: set[str]
    skipped: frozenset[str] = frozenset()


def stranger() -> dict[str, bytes]:
    return make_files(new_authority())


def weak_pair() -> KeyPair:
    key = rsa.generate_private_key(65537, 1024)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "weak")])
    builder = x509.CertificateBuilder().serial_number(1).subject_name(name).issuer_name(name)
    builder = builder.public_key(key.public_key()).not_valid_before(now() - DAY).not_valid_after(now() + DAY)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return encode_pair(builder.sign(key, hashes.SHA256()), key)


def swap(folder: Path, first: str, second: str) -> None:
    names = (first, second)
    contents = [(folder / name).read_bytes() for name in names]
    for name, content in zip(names, reversed(contents), strict=True):
        (folder / name).write_bytes(content)


def exchange(folder: Path, first: str, second: str) -> None:
    for kind in ("crt", "key"):
        swap(folder, f"{first}.{kind}", f"{second}.{kind}")


def nameless_server(folder: Path) -> None:
    pair = KeyPair((folder / "ca.crt").read_bytes(), (folder / "ca.key").read_bytes())
    leaf = Authority.load(pair).issue(server_profile("s", [], KeyType.ECDSA_P256), now(), DAY)
    (folder / "server.crt").write_bytes(leaf.certificate)
    (folder / "server.key").write_bytes(leaf.key)


HANDSHAKE = frozenset({"handshake.mutual"})
DAMAGES = {
    "another authority": Damage(
        lambda folder: (folder / "ca.crt").write_bytes(stranger()["ca.crt"]),
        {"ca.key", "server.chain", "agent.chain", "client.chain", "handshake.mutual"},
    ),
    "an agent of another authority": Damage(
        lambda folder: written(folder, {name: stranger()[name] for name in ("agent.crt",)}),
        {"agent.key"},
        HANDSHAKE | {"agent.chain"},
    ),
    "a leaf as authority": Damage(
        lambda folder: (folder / "ca.crt").write_bytes((folder / "agent.crt").read_bytes()),
        {"ca.file", "ca.key", "server.chain", "agent.chain", "client.chain", "handshake.mutual"},
    ),
    "a bundle that begins with another signer": Damage(
        lambda folder: (folder / "ca.crt").write_bytes(stranger()["ca.crt"] + (folder / "ca.crt").read_bytes()), set()
    ),
    "no authority": Damage(
        lambda folder: (folder / "ca.crt").unlink(),
        {"ca.file"},
        HANDSHAKE | {"ca.time", "ca.strength", "server.chain", "agent.chain", "client.chain"},
    ),
    "a weak authority beside the good one": Damage(
        lambda folder: (folder / "ca.crt").write_bytes((folder / "ca.crt").read_bytes() + weak_pair().certificate),
        {"ca.strength"},
    ),
    "no server certificate": Damage(
        lambda folder: (folder / "server.crt").unlink(),
        {"server.file"},
        HANDSHAKE | {f"server.{name}" for name in ("key", "chain", "usage", "time", "strength", "names")},
    ),
    "no agent key": Damage(
        lambda folder: (folder / "agent.key").unlink(), {"agent.key"}, HANDSHAKE | {"agent.mode", "agent.chain"}
    ),
    "keys exchanged": Damage(
        lambda folder: swap(folder, "server.key", "agent.key"),
        {"server.key", "agent.key"},
        HANDSHAKE | {"server.chain", "agent.chain"},
    ),
    "server and agent exchanged": Damage(
        lambda folder: exchange(folder, "server", "agent"),
        {"server.usage", "agent.usage", "server.names"},
        HANDSHAKE | {"server.chain", "agent.chain"},
    ),
    "a key that all can read": Damage(lambda folder: (folder / "server.key").chmod(0o644), {"server.mode"}),
    "a signer that all can read": Damage(lambda folder: (folder / "ca.key").chmod(0o604), {"ca.key"}),
    "a directory that all can write": Damage(lambda folder: folder.chmod(0o777), {"ca.folder"}),
    "a server without names": Damage(nameless_server, {"server.names"}, HANDSHAKE),
}


@pytest.mark.parametrize("name", list(DAMAGES))
def test_each_damage_is_found_where_it_is(name: str, folder: Path) -> None:
    damage = DAMAGES[name]
    damage.inflict(folder)
    found = judged(folder)
    assert having(found, Outcome.FAILED) == damage.failed
    assert having(found, Outcome.SKIPPED) == damage.skipped
    assert all(finding.evidence for finding in found.values() if finding.outcome is Outcome.FAILED)


def test_an_address_that_is_not_in_the_certificate_is_found(folder: Path) -> None:
    found = judged(folder, ADDRESS, "10.0.0.10", "::2", "a.b.apps.example.com", "apps.example.com")
    assert having(found, Outcome.FAILED) == {"server.names", "handshake.mutual"}
    assert "10.0.0.10, ::2, a.b.apps.example.com, apps.example.com" in found["server.names"].evidence
    assert f"; the certificate names *.apps.example.com, {ADDRESS}, ::1" in found["server.names"].evidence


def test_what_has_expired_is_found(tmp_path: Path) -> None:
    then = now() - 30 * HOUR
    folder = written(tmp_path / "pki", make_files(new_authority(then, 60 * HOUR), then))
    found = judged(folder, ADDRESS)
    assert having(found, Outcome.FAILED) == {"server.time", "agent.time", "client.time", "handshake.mutual"}
    assert "konnectivity-server expired 6h00m ago" in found["server.time"].evidence
    assert "expired" in found["handshake.mutual"].evidence


def test_what_is_not_yet_valid_is_found(tmp_path: Path) -> None:
    then = now() + 5 * HOUR
    folder = written(tmp_path / "pki", make_files(new_authority(then), then))
    found = judged(folder, ADDRESS)
    expected = {"ca.time", "server.time", "agent.time", "client.time", "handshake.mutual"}
    assert having(found, Outcome.FAILED) == expected
    assert "konnectivity-agent begins in 3h59m" in found["agent.time"].evidence
    assert "not yet valid" in found["handshake.mutual"].evidence


@pytest.mark.parametrize(
    ("passed_hours", "min_left", "outcome"),
    [
        (0, HOUR / 2, Outcome.PASSED),
        (17.9, HOUR / 2, Outcome.PASSED),
        (18.1, HOUR / 2, Outcome.WARNED),
        (23.4, HOUR / 2, Outcome.WARNED),
        (23.6, HOUR / 2, Outcome.FAILED),
        (23.6, HOUR / 10, Outcome.WARNED),
        (2, 23 * HOUR, Outcome.FAILED),
        (25, timedelta(), Outcome.FAILED),
    ],
)
def test_time_left_is_judged(folder: Path, passed_hours: float, min_left: timedelta, outcome: Outcome) -> None:
    found = judged(folder, when=now() + passed_hours * HOUR, min_left=min_left)
    assert [found[name].outcome for name in ("ca.time", "server.time", "agent.time")] == [outcome] * 3


def test_a_leaf_ends_with_its_authority(tmp_path: Path) -> None:
    """Others sign leaves that outlive their authority; what counts is which ends first."""
    signer = Authority.create("short", now(), 8 * HOUR, KeyType.ECDSA_P256)
    authority = load_authority(Authority, signer.pair, now())
    files = make_files(authority)
    leaf = signer.issue(server_profile("s", [ADDRESS], KeyType.ECDSA_P256), now(), DAY)
    folder = written(tmp_path / "pki", {**files, "server.crt": leaf.certificate, "server.key": leaf.key})
    found = judged(folder, when=now() + 7 * HOUR)["server.time"]
    assert found.outcome is Outcome.WARNED
    assert "short, which signed it, has" in found.evidence


def test_keys_that_a_group_can_read_are_warned_of(folder: Path) -> None:
    (folder / "agent.key").chmod(0o640)
    folder.chmod(0o770)
    assert having(judged(folder), Outcome.WARNED) == {"agent.mode", "ca.folder"}


def test_a_signers_key_need_not_be_here(folder: Path) -> None:
    (folder / "ca.key").unlink()
    assert judged(folder)["ca.key"].outcome is Outcome.PASSED


def test_only_what_was_looked_at_is_judged(folder: Path) -> None:
    facts = look_at(folder, [Role.AGENT], ())
    ids = {finding.id.partition(".")[0] for finding in findings(Question(facts, now()))}
    assert ids == {"ca", "agent"}
