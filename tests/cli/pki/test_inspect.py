"""`umbilical pki inspect` and `verify`: what is found in a directory, and how it is told."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from tests.support.commands import Run
from tests.support.fixture_types import Captured, Patch
from tests.support.tunnel_directories import ADDRESS, make_directory, make_files, new_authority, now

from umbilical.checks.check import Finding, Outcome
from umbilical.cli.pki.files import write_directory
from umbilical.cli.pki.text import alternative_names, as_value, expiry, kind, print_shortened, short_line
from umbilical.pki.authority import Authority, encode_pair
from umbilical.pki.certificate import Certificate, moment, read_certificates, span
from umbilical.pki.directory import read_directory
from umbilical.pki.directory_checks import HEADINGS, DirectoryInput, findings
from umbilical.pki.pem import KeyPair
from umbilical.pki.profiles import KeyType, Profile, Usage, server_profile
from umbilical.pki.tunnel_set import DAY, TunnelRole, load_authority


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_directory(tmp_path / "pki")


def test_the_short_form_is_one_line_and_names_its_file_among_several(folder: Path, umbilical: Run) -> None:
    (line,) = umbilical("pki", "inspect", folder / "server.crt", "--short").lines
    assert line.startswith("X.509 server (ECDSA P-256) [Serial ")
    assert f"CN=konnectivity-server SAN IP:{ADDRESS} expires in 23h59m signed-by konnectivity-signer" in line
    names = [line.partition(":")[0] for line in umbilical("pki", "inspect", "--short", folder).lines]
    assert names == [str(folder / f"{name}.crt") for name in ("agent", "ca", "client", "server")]


def test_the_long_form_tells_all(folder: Path, umbilical: Run) -> None:
    text = umbilical("pki", "inspect", folder / "server.crt", folder / "ca.crt").out
    for word in ("server, ECDSA P-256, SHA-256", "O=openshift, CN=konnectivity-signer", f"IP:{ADDRESS}", "serverAuth"):
        assert word in text
    assert text.count("\n\n") == 1


def test_json_is_for_programs(folder: Path, umbilical: Run) -> None:
    value = umbilical("pki", "inspect", "-o", "json", folder / "server.crt").json()
    assert (value["apiVersion"], value["kind"]) == ("umbilical.dev/v1alpha1", "CertificateList")
    (item,) = value["items"]
    found = (item["commonName"], item["ipAddresses"], item["usages"])
    assert found == ("konnectivity-server", [ADDRESS], ["serverAuth"])
    assert 86_000 < item["secondsLeft"] <= 86_400


def test_a_name_cannot_move_the_cursor(tmp_path: Path, umbilical: Run) -> None:
    evil = Authority.create("\x1b[2Jgone", now(), DAY, KeyType.ECDSA_P256)
    (tmp_path / "evil.crt").write_bytes(evil.certificate_pem)
    for form in (["--short"], [], ["-o", "json"]):
        printed = umbilical("pki", "inspect", tmp_path / "evil.crt", *form).out
        assert "\x1b" not in printed
        assert "gone" in printed


def test_what_is_no_certificate_is_told(folder: Path, umbilical: Run) -> None:
    for name, why in (("server.key", "private key"), ("none", "No such file"), ("ca", "no .crt")):
        (folder / "ca").mkdir(exist_ok=True)
        printed = umbilical("pki", "inspect", folder / name, status=3)
        assert (printed.out, "UMB152" in printed.err, why in printed.err) == ("", True, True)


@pytest.fixture
def verify(umbilical: Run) -> Run:
    return partial(umbilical, "pki", "verify")


def test_a_good_directory_is_0_and_says_what_ends_first(folder: Path, verify: Run) -> None:
    printed = verify(folder, "--address", ADDRESS)
    assert "Agent and server together" in printed.out
    assert "28 passed, 0 failed" in printed.out
    assert "first to expire: konnectivity-server, expires in 23h59m" in printed.err


def test_a_wrong_address_or_too_little_time_is_1(folder: Path, verify: Run) -> None:
    verify(folder, "--min-left", "23h")
    verify(folder, "--min-left", "25h", status=1)
    told = verify(folder, "--address", "10.0.0.10", status=1)
    assert f"agents dial 10.0.0.10; the certificate names {ADDRESS}" in told.out


def test_json_and_junit_carry_the_same_findings(folder: Path, verify: Run) -> None:
    value = verify(folder, "-o", "json", "--address", "10.0.0.10", status=1).json()
    assert (value["kind"], value["directory"]) == ("PkiReport", str(folder))
    failed = [finding["id"] for finding in value["findings"] if finding["outcome"] == "failed"]
    assert failed == ["server.names", "handshake.mutual"]
    suites = ElementTree.fromstring(verify(folder, "-o", "junit", "--address", "10.0.0.10", status=1).out)
    names = [case.get("name", "").split()[0] for case in suites.iter("testcase") if case.find("failure") is not None]
    assert names == failed


def test_without_a_client_certificate_none_is_missed(folder: Path, verify: Run) -> None:
    (folder / "client.crt").unlink()
    verify(folder, status=1)
    (folder / "client.key").unlink()
    assert " client." not in verify(folder).out


def test_an_agents_own_files_can_be_looked_at_alone(folder: Path, verify: Run) -> None:
    (folder / "server.crt").unlink()
    (folder / "server.key").unlink()
    verify(folder, status=1)
    verify(folder, "--only", "agent")


def test_colour_is_for_those_who_ask(folder: Path, monkeypatch: Patch, verify: Run) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert "\x1b[" not in verify(folder).out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[32m" in verify(folder).out


def test_what_cannot_be_checked_is_told(tmp_path: Path, umbilical: Run) -> None:
    for arguments, status, code in (
        (("none",), 3, "UMB156"),
        ((".", "--address", "a:1"), 3, "UMB150"),
        ((".", "--min-left", "x"), 2, "UMB001"),
    ):
        assert code in umbilical("pki", "verify", tmp_path / arguments[0], *arguments[1:], status=status).err


HOUR = timedelta(hours=1)


def checked(
    sound: Path, *addresses: str, when: datetime | None = None, min_left: timedelta = HOUR / 2
) -> dict[str, Finding]:
    facts = read_directory(sound, TunnelRole, addresses)
    found = findings(DirectoryInput(facts, when or now(), addresses, min_left))
    return {finding.id: finding for finding in found}


def having(found: dict[str, Finding], outcome: Outcome) -> set[str]:
    return {name for name, finding in found.items() if finding.outcome is outcome}


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    return written(tmp_path / "pki", make_files(new_authority(), addresses=(ADDRESS, "::1", "*.apps.example.com")))


def written(sound: Path, files: dict[str, bytes]) -> Path:
    write_directory(sound, files, overwrite=True)
    return sound


def test_a_good_directory_passes_every_check(sound: Path) -> None:
    found = checked(sound, ADDRESS, "::1", "a.apps.example.com")
    assert having(found, Outcome.PASSED) == set(found)
    assert {name.partition(".")[0] for name in found} == set(HEADINGS)


def test_words_are_whole_and_name_the_directory(sound: Path) -> None:
    for finding in checked(sound).values():
        assert finding.title
        assert finding.why
        assert finding.fix
        assert "DIR" not in finding.fix
    assert str(sound) in checked(sound)["server.chain"].fix


@dataclass(frozen=True)
class Damage:
    """How a directory is broken, what must fail by it, and what is not checked any more."""

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


def swap(sound: Path, first: str, second: str) -> None:
    names = (first, second)
    contents = [(sound / name).read_bytes() for name in names]
    for name, content in zip(names, reversed(contents), strict=True):
        (sound / name).write_bytes(content)


def exchange(sound: Path, first: str, second: str) -> None:
    for ending in ("crt", "key"):
        swap(sound, f"{first}.{ending}", f"{second}.{ending}")


def nameless_server(sound: Path) -> None:
    pair = KeyPair((sound / "ca.crt").read_bytes(), (sound / "ca.key").read_bytes())
    leaf = Authority.load(pair).issue(server_profile("s", [], KeyType.ECDSA_P256), now(), DAY)
    (sound / "server.crt").write_bytes(leaf.certificate)
    (sound / "server.key").write_bytes(leaf.key)


HANDSHAKE = frozenset({"handshake.mutual"})
DAMAGES = {
    "another authority": Damage(
        lambda sound: (sound / "ca.crt").write_bytes(stranger()["ca.crt"]),
        {"ca.key", "server.chain", "agent.chain", "client.chain", "handshake.mutual"},
    ),
    "an agent of another authority": Damage(
        lambda sound: written(sound, {name: stranger()[name] for name in ("agent.crt",)}),
        {"agent.key"},
        HANDSHAKE | {"agent.chain"},
    ),
    "a leaf as authority": Damage(
        lambda sound: (sound / "ca.crt").write_bytes((sound / "agent.crt").read_bytes()),
        {"ca.file", "ca.key", "server.chain", "agent.chain", "client.chain", "handshake.mutual"},
    ),
    "a bundle that begins with another signer": Damage(
        lambda sound: (sound / "ca.crt").write_bytes(stranger()["ca.crt"] + (sound / "ca.crt").read_bytes()), set()
    ),
    "no authority": Damage(
        lambda sound: (sound / "ca.crt").unlink(),
        {"ca.file"},
        HANDSHAKE | {"ca.time", "ca.strength", "server.chain", "agent.chain", "client.chain"},
    ),
    "a weak authority beside the good one": Damage(
        lambda sound: (sound / "ca.crt").write_bytes((sound / "ca.crt").read_bytes() + weak_pair().certificate),
        {"ca.strength"},
    ),
    "no server certificate": Damage(
        lambda sound: (sound / "server.crt").unlink(),
        {"server.file"},
        HANDSHAKE | {f"server.{name}" for name in ("key", "chain", "usage", "time", "strength", "names")},
    ),
    "no agent key": Damage(
        lambda sound: (sound / "agent.key").unlink(), {"agent.key"}, HANDSHAKE | {"agent.mode", "agent.chain"}
    ),
    "keys exchanged": Damage(
        lambda sound: swap(sound, "server.key", "agent.key"),
        {"server.key", "agent.key"},
        HANDSHAKE | {"server.chain", "agent.chain"},
    ),
    "server and agent exchanged": Damage(
        lambda sound: exchange(sound, "server", "agent"),
        {"server.usage", "agent.usage", "server.names"},
        HANDSHAKE | {"server.chain", "agent.chain"},
    ),
    "a key that all can read": Damage(lambda sound: (sound / "server.key").chmod(0o644), {"server.mode"}),
    "a signer that all can read": Damage(lambda sound: (sound / "ca.key").chmod(0o604), {"ca.key"}),
    "a directory that all can write": Damage(lambda sound: sound.chmod(0o777), {"ca.folder"}),
    "a server without names": Damage(nameless_server, {"server.names"}, HANDSHAKE),
}


@pytest.mark.parametrize("name", list(DAMAGES))
def test_each_damage_is_found_where_it_is(name: str, sound: Path) -> None:
    damage = DAMAGES[name]
    damage.inflict(sound)
    found = checked(sound)
    assert having(found, Outcome.FAILED) == damage.failed
    assert having(found, Outcome.SKIPPED) == damage.skipped
    assert all(finding.evidence for finding in found.values() if finding.outcome is Outcome.FAILED)


def test_an_address_that_is_not_in_the_certificate_is_found(sound: Path) -> None:
    found = checked(sound, ADDRESS, "10.0.0.10", "::2", "a.b.apps.example.com", "apps.example.com")
    assert having(found, Outcome.FAILED) == {"server.names", "handshake.mutual"}
    assert "10.0.0.10, ::2, a.b.apps.example.com, apps.example.com" in found["server.names"].evidence
    assert f"; the certificate names *.apps.example.com, {ADDRESS}, ::1" in found["server.names"].evidence


def test_what_has_expired_is_found(tmp_path: Path) -> None:
    then = now() - 30 * HOUR
    sound = written(tmp_path / "pki", make_files(new_authority(then, 60 * HOUR), then))
    found = checked(sound, ADDRESS)
    assert having(found, Outcome.FAILED) == {"server.time", "agent.time", "client.time", "handshake.mutual"}
    assert "konnectivity-server expired 6h00m ago" in found["server.time"].evidence
    assert "expired" in found["handshake.mutual"].evidence


def test_what_is_not_yet_valid_is_found(tmp_path: Path) -> None:
    then = now() + 5 * HOUR
    sound = written(tmp_path / "pki", make_files(new_authority(then), then))
    found = checked(sound, ADDRESS)
    expected = {"ca.time", "server.time", "agent.time", "client.time", "handshake.mutual"}
    assert having(found, Outcome.FAILED) == expected
    assert "konnectivity-agent becomes valid in 3h59m" in found["agent.time"].evidence
    assert "not yet valid" in found["handshake.mutual"].evidence


def test_time_left_is_checked(sound: Path) -> None:
    for passed_hours, min_left, outcome in (
        *((0, HOUR / 2, Outcome.PASSED), (17.9, HOUR / 2, Outcome.PASSED), (18.1, HOUR / 2, Outcome.WARNED)),
        *((23.4, HOUR / 2, Outcome.WARNED), (23.6, HOUR / 2, Outcome.FAILED), (23.6, HOUR / 10, Outcome.WARNED)),
        *((2, 23 * HOUR, Outcome.FAILED), (25, timedelta(), Outcome.FAILED)),
    ):
        found = checked(sound, when=now() + passed_hours * HOUR, min_left=min_left)
        assert [found[name].outcome for name in ("ca.time", "server.time", "agent.time")] == [outcome] * 3


def test_a_leaf_ends_with_its_authority(tmp_path: Path) -> None:
    """Others sign leaves that outlive their authority; what counts is which ends first."""
    signer = Authority.create("short", now(), 8 * HOUR, KeyType.ECDSA_P256)
    authority = load_authority(Authority, signer.pair, now())
    files = make_files(authority)
    leaf = signer.issue(server_profile("s", [ADDRESS], KeyType.ECDSA_P256), now(), DAY)
    sound = written(tmp_path / "pki", {**files, "server.crt": leaf.certificate, "server.key": leaf.key})
    found = checked(sound, when=now() + 7 * HOUR)["server.time"]
    assert found.outcome is Outcome.WARNED
    assert "its CA short has" in found.evidence


def test_groups_and_missing_signers_keys_are_checked(sound: Path) -> None:
    (sound / "ca.key").unlink()
    assert checked(sound)["ca.key"].outcome is Outcome.PASSED
    (sound / "agent.key").chmod(0o640)
    sound.chmod(0o770)
    assert having(checked(sound), Outcome.WARNED) == {"agent.mode", "ca.folder"}


def test_only_what_was_looked_at_is_checked(sound: Path) -> None:
    facts = read_directory(sound, [TunnelRole.AGENT], ())
    ids = {finding.id.partition(".")[0] for finding in findings(DirectoryInput(facts, now()))}
    assert ids == {"ca", "agent"}


NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
ONE_DAY = timedelta(days=1)
AUTHORITY = Authority.create("signer", NOW, ONE_DAY, KeyType.ECDSA_P256)


def leaf(*usages: Usage, names: tuple[str, ...] = ()) -> Certificate:
    profile = Profile("x", usages, dns_names=names, key_type=KeyType.ECDSA_P256)
    return read_certificates(AUTHORITY.issue(profile, NOW, ONE_DAY).certificate)[0]


def test_a_span_is_as_precise_as_it_helps() -> None:
    for length, text in (
        *((timedelta(hours=22, minutes=41), "22h41m"), (timedelta(days=2), "48h00m")),
        *((timedelta(days=3, hours=4), "3d04h"), (timedelta(minutes=59, seconds=59), "59m")),
        *((timedelta(seconds=90), "90s"), (timedelta(), "0s"), (-ONE_DAY, "0s")),
    ):
        assert span(length) == text


def test_moments_and_expiry_are_told_from_now_on() -> None:
    assert moment(NOW) == "2026-11-15 12:00 UTC"
    certificate = leaf(Usage.SERVER)
    assert expiry(certificate, NOW) == "expires in 24h00m"
    assert expiry(certificate, NOW + 2 * ONE_DAY) == "expired 24h00m ago"
    assert expiry(certificate, NOW - ONE_DAY) == "becomes valid in 23h00m"


def test_kinds_are_told_by_what_a_certificate_may_do() -> None:
    assert kind(read_certificates(AUTHORITY.certificate_pem)[0]) == "authority"
    assert kind(leaf(Usage.SERVER)) == "server"
    assert kind(leaf(Usage.SERVER, Usage.CLIENT)) == "server+client"


def test_a_line_has_names_only_where_there_are_some() -> None:
    with_names, without = leaf(Usage.SERVER, names=("a", "b")), leaf(Usage.CLIENT)
    assert alternative_names(with_names) == ["DNS:a", "DNS:b"]
    assert " SAN DNS:a,DNS:b expires in 24h00m signed-by signer" in short_line(with_names, NOW)
    assert "SAN" not in short_line(without, NOW)
    assert as_value(without, NOW)["dnsNames"] == []


def test_a_cut_is_told_only_where_there_is_one(capfd: Captured) -> None:
    authority = new_authority(NOW, ONE_DAY)
    print_shortened(authority, NOW, ONE_DAY)
    assert capfd.readouterr().err == ""
    print_shortened(authority, NOW + timedelta(hours=20), ONE_DAY)
    assert (
        "expire in 4h00m, not 24h00m: the CA konnectivity-signer expires at 2026-11-16 12:00 UTC"
        in capfd.readouterr().err
    )
