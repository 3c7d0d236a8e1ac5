"""S1 to S11 and F1 to F9: each fails by a change of its own, and no other of its group does."""

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import pytest
from tests.support.bootstrap_corpus import bootstrap_config
from tests.support.verify_subjects import NAMES, Subject, failures, findings, subject, warnings

from umbilical.bootstrap.names import BOOTKUBE, OWN, RECEIPT, RELEASE_IMAGE, SERVICE_RECORD
from umbilical.bootstrap.patch.plan import LIMIT_BYTES, WARNING_BYTES
from umbilical.bootstrap.verify.facts import BootstrapFacts
from umbilical.bootstrap.verify.files import FILES, ROLES
from umbilical.bootstrap.verify.structure import FAILURE_SECONDS, STRUCTURE, WARNING_SECONDS, time_left
from umbilical.checks.check import Outcome
from umbilical.pki.authority import Authority
from umbilical.pki.profiles import KeyType

S = tuple(check.id for check in STRUCTURE)
F = tuple(check.id for check in FILES)
NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
PLAIN = Subject(bootstrap_config("4.18"))
MOTD, KUBECONFIG = "/etc/motd", "/opt/openshift/auth/kubeconfig"
BAD_BASE64 = {"source": "data:;base64,!!!"}
NUMBERS = {role: f"F{number}" for number, role in enumerate(ROLES, 1)}
KEY = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
Json = dict[str, Any]


def entry(value: Json, path: str) -> Json:
    found: Json = next(found for found in value["storage"]["files"] if found["path"] == path)
    return found


def added(file: object) -> Callable[[Json], None]:
    return lambda value: value["storage"]["files"].append(file)


def contents(path: str, **changes: Any) -> Callable[[Json], None]:
    return lambda value: entry(value, path)["contents"].update(changes)


def unit(value: Json) -> Json:
    found: Json = next(found for found in value["systemd"]["units"] if found["name"] == "bootkube.service")
    return found


def test_what_is_no_config_fails_the_first_check_and_skips_the_rest() -> None:
    for content in (b"", b"{", b"[]", b"7", b'{"ignition": {}}', b"\xff", b'{"ignition": 1}', b"[" * 9999):
        found = findings(content)
        assert found.pop("S1").outcome is Outcome.FAILED
        assert {finding.outcome for finding in found.values()} == {Outcome.SKIPPED}


def test_only_known_versions_pass() -> None:
    for version in ("3.0.0", "3.1.0", "3.2.0", "3.5.0"):
        assert not failures(bootstrap_config("4.18", version=version), *S), version
    for version in ("2.2.0", "3.6.0", "3.2.0-experimental", "3.2", "", "3.2.0\n"):
        assert failures(bootstrap_config("4.18", version=version), *S) - {"S11"} == {"S1"}, version


@pytest.mark.parametrize(
    ("check", "change"),
    [
        ("S2", lambda value: value["ignition"].update(config={"replace": {"source": "https://x.example/y"}})),
        ("S2", lambda value: value["ignition"].update(config={"merge": [{"source": "https://x.example/y"}]})),
        ("S3", lambda value: value["storage"]["files"].append(dict(entry(value, MOTD)))),
        ("S3", lambda value: entry(value, MOTD).update(path="etc/motd")),
        ("S3", lambda value: value["storage"].update(directories=[{"path": MOTD}])),
        ("S3", added({"path": "/etc//motd", "contents": {"source": "data:,x"}})),
        ("S4", lambda value: entry(value, BOOTKUBE).update(mode="0555")),
        ("S4", lambda value: entry(value, BOOTKUBE).update(mode=4096)),
        ("S4", lambda value: entry(value, BOOTKUBE).update(mode=True)),
        ("S5", contents(KUBECONFIG, **BAD_BASE64)),
        ("S5", lambda value: entry(value, MOTD)["append"][0].update(BAD_BASE64)),
        ("S5", contents(KUBECONFIG, verification={"hash": "sha512-" + "0" * 128})),
        ("S5", contents(KUBECONFIG, compression="gzip")),
        ("S7", lambda value: value["storage"]["files"].remove(entry(value, RELEASE_IMAGE))),
        ("S7", lambda value: value["storage"]["files"].remove(entry(value, SERVICE_RECORD))),
        ("S7", lambda value: value["storage"]["files"].remove(entry(value, BOOTKUBE))),
        ("S8", lambda value: value["systemd"]["units"].remove(unit(value))),
        ("S8", lambda value: unit(value).update(mask=True)),
        ("S8", lambda value: unit(value).update(contents="[Service]\nExecStart=/bin/true\n")),
        ("S8", lambda value: unit(value).update(contents="[Service]\n#ExecStart=/usr/local/bin/bootkube.sh\n")),
        ("S11", lambda value: entry(value, BOOTKUBE).update(user={"id": 0, "name": "root"})),
        ("S11", added(7)),
    ],
)
def test_a_broken_structure_fails_its_check(check: str, change: Callable[[Json], None]) -> None:
    # Ignition's own rules overlap with most of these.
    overlap = {"S11"} - {check}
    assert failures(PLAIN.whole(change).content, *S) - overlap == {check}


def test_bootstrap_in_place_fails_a_comment_about_it_does_not_and_a_pointer_needs_a_name() -> None:
    assert failures(bootstrap_config("4.18", in_place=True), *S) == {"S9"}
    line = "BOOTSTRAP_INPLACE=false"
    assert not failures(PLAIN.replaced("bootkube", line, f"{line} # BOOTSTRAP_INPLACE=true").content, *S)
    empty = {"replace": {"verification": {}}, "merge": []}
    assert not failures(PLAIN.whole(lambda value: value["ignition"].update(config=empty)).content, *S)


def test_a_file_that_its_secret_cannot_hold_fails_and_one_that_nearly_fills_it_warns() -> None:
    big = bootstrap_config("4.18", padding_bytes=LIMIT_BYTES * 3 // 4)
    assert len(big) > LIMIT_BYTES
    for platform in ("aws", "powervs", "vsphere"):
        assert failures(big, *S, platform=platform) == {"S6"}, platform
    assert findings(big, "S6", platform="gcp")["S6"].outcome is Outcome.SKIPPED
    nearly = bootstrap_config("4.18", padding_bytes=WARNING_BYTES * 3 // 4)
    assert WARNING_BYTES < len(nearly) < LIMIT_BYTES
    assert (failures(nearly, *S), warnings(nearly, *S)) == (set(), {"S6"})


def test_the_platform_is_found_in_the_file_or_said_to_be_unknown() -> None:
    assert findings(bootstrap_config("4.18", platform="vsphere"), "S6")["S6"].outcome is Outcome.PASSED
    unknown = findings(PLAIN.without("/opt/openshift/manifests/cluster-config.yaml").content, "S6")["S6"]
    assert unknown.outcome is Outcome.SKIPPED
    assert "--platform" in unknown.evidence


@cache
def expiring() -> bytes:
    """A config whose certificate ends a day after NOW."""
    authority = Authority.create("root-ca", NOW, timedelta(hours=24), key_type=KeyType.ECDSA_P256)
    certificate = authority.certificate_pem.decode()
    changed = PLAIN.with_text("/opt/openshift/tls/root-ca.crt", certificate)
    return changed.with_text("/opt/openshift/tls/kube-apiserver-lb-server.crt", certificate).content


def now_with(seconds_left: float) -> float:
    return (NOW + timedelta(hours=24)).timestamp() - seconds_left


def test_the_expiry_clock_warns_and_then_fails() -> None:
    for left, outcome in (
        (WARNING_SECONDS + 60, Outcome.PASSED),
        (WARNING_SECONDS - 60, Outcome.WARNED),
        (FAILURE_SECONDS + 60, Outcome.WARNED),
        (FAILURE_SECONDS - 60, Outcome.FAILED),
        (-60, Outcome.FAILED),
    ):
        assert findings(expiring(), "S10", now=now_with(left))["S10"].outcome is outcome


def test_the_expiry_clock_tells_the_time() -> None:
    now = now_with(3600 + 120)
    assert "1h02m left" in findings(expiring(), "S10", now=now)["S10"].evidence
    assert time_left(BootstrapFacts(expiring(), now=now)) == "1h02m left"
    assert "expired 2h00m ago" in findings(expiring(), "S10", now=now_with(-7200))["S10"].evidence


def test_without_a_clock_or_certificates_nothing_expires() -> None:
    assert findings(PLAIN.content, "S10")["S10"].outcome is Outcome.SKIPPED
    bare = PLAIN.without("/opt/openshift/tls/root-ca.crt").without("/opt/openshift/tls/kube-apiserver-lb-server.crt")
    assert findings(bare.content, "S10", now=NOW.timestamp())["S10"].outcome is Outcome.SKIPPED
    assert time_left(BootstrapFacts(bare.content, now=NOW.timestamp())) is None
    assert time_left(BootstrapFacts(PLAIN.content)) is None
    assert time_left(BootstrapFacts(b"", now=0)) is None


def test_structure_passes_whatever_the_profile_and_the_formatting() -> None:
    for name in ("native", "patched"):
        found = findings(subject(name).content, *(check for check in S if check != "S10"))
        assert {finding.outcome for finding in found.values()} == {Outcome.PASSED}, name
    value = json.loads(PLAIN.content)
    assert not failures(json.dumps(value, indent=4, sort_keys=True).encode())


@pytest.mark.parametrize("role", ROLES)
def test_a_wrong_mode_owner_or_way_of_writing_fails_that_file(role: str) -> None:
    wrong: list[Json] = [
        *({"mode": mode} for mode in (0o644, None)),
        *({"user": user} for user in ({"name": "core"}, {"id": 1000}, None)),
        *({"overwrite": overwrite} for overwrite in (False, None)),
        {"group": {"name": "wheel"}},
    ]
    found = [failures(subject("patched").entry(role, **changes).content, *F) for changes in wrong]
    assert found == [{NUMBERS[role]}] * len(wrong)
    assert not failures(subject("patched").entry(role, user={"id": 0}, group={"id": 0}).content, *F)


@pytest.mark.parametrize("name", NAMES)
def test_the_files_of_every_tunnel_are_judged(name: str) -> None:
    # The seed shape's agents live in kube-system, which needs no file.
    for role in [role for role in ROLES if (name, role) != ("seed", "namespace")]:
        assert failures(subject(name).entry(role, mode=0o644).content, *F) == {NUMBERS[role]}, role


def test_a_missing_file_fails() -> None:
    for name in ("native", "patched"):
        for role in ROLES:
            found = failures(subject(name).without(role).content)
            assert NUMBERS[role] in found, role
            # A missing namespace is one that nobody makes, a missing Secret has no key for the agents; the installer's
            # library is how its tunnel is known at all.
            assert found - {NUMBERS[role]} <= {"C6", "C7"}, role


def test_a_file_that_is_there_twice_or_without_content_fails() -> None:
    patched = subject("patched")
    for role in ROLES:
        file = entry(json.loads(patched.content), patched.path(role))
        assert failures(patched.whole(added(file)).content, *S, *F) >= {NUMBERS[role], "S3"}, role
    assert failures(patched.entry("egress", contents={}).content, "F1")


def test_the_namespace_file_is_not_asked_for_where_agents_live_in_kube_system() -> None:
    finding = findings(subject("seed").content, "F4")["F4"]
    assert finding.outcome is Outcome.SKIPPED
    assert "kube-system" in finding.evidence


def test_a_key_or_certificate_that_is_embedded_or_in_a_comment_of_ours_fails() -> None:
    for path in (f"{OWN.pki_directory}/agent/tls.key", "/opt/openshift/umbilical/ca.crt"):
        source = "data:;base64," + base64.b64encode(KEY.encode()).decode()
        file = {"path": path, "mode": 384, "overwrite": True, "user": {"name": "root"}, "contents": {"source": source}}
        assert failures(subject("patched").whole(added(file)).content, *S, *F) == {"F9"}
    for role in ("library", "server_pod"):
        patched = subject("patched")
        commented = "".join(f"# {line}\n" for line in KEY.splitlines())
        assert failures(patched.with_text(role, patched.text(role) + commented).content) == {"F9"}


@pytest.mark.parametrize("name", NAMES)
def test_a_secret_that_is_filled_in_already_fails(name: str) -> None:
    encoded = base64.b64encode(KEY.encode()).decode()
    changed = subject(name).edited("agent_secret", lambda value: value["data"].update({"tls.key": encoded}))
    assert failures(changed.content) == {"F9"}


def test_the_installers_own_keys_and_what_the_receipt_quotes_are_no_matter_of_ours() -> None:
    patched = subject("patched")
    assert "PRIVATE KEY" in patched.text("/opt/openshift/tls/kube-apiserver-lb-server.key")
    assert findings(patched.content, "F9")["F9"].outcome is Outcome.PASSED
    quoted = patched.text(RECEIPT).replace('"version": 1,', '"version": 1, "note": "-----BEGIN PRIVATE KEY-----",')
    assert not failures(patched.with_text(RECEIPT, quoted).content)
