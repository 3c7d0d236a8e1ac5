"""S1 to S11: each one fails by a change of its own, and by nothing else."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.bootstrap_corpus import bootstrap_config
from tests.support.verify_subjects import Subject, failures, findings, subject, warnings

from umbilical.assets.bootkube.size_limit import LIMIT_BYTES, WARNING_BYTES
from umbilical.assets.names import BOOTKUBE, RELEASE_IMAGE, SERVICE_RECORD
from umbilical.assets.verify.facts import BootstrapFacts
from umbilical.assets.verify.structure import FAILURE_SECONDS, STRUCTURE, WARNING_SECONDS, time_left
from umbilical.checks.check import Outcome
from umbilical.pki.authority import Authority
from umbilical.pki.profiles import KeyType

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
Json = dict[str, Any]


def plain() -> Subject:
    """A config without a tunnel: whatever fails here fails by structure alone."""
    return Subject(bootstrap_config("4.18"))


def entries(value: Json) -> list[Json]:
    found: list[Json] = value["storage"]["files"]
    return found


def entry(value: Json, path: str) -> Json:
    return next(found for found in entries(value) if found["path"] == path)


def unit(value: Json) -> Json:
    return next(found for found in value["systemd"]["units"] if found["name"] == "bootkube.service")


def test_the_checks_are_numbered() -> None:
    assert [check.id for check in STRUCTURE] == [f"S{number}" for number in range(1, 12)]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"7", b'{"ignition": {}}', b"\xff", b'{"ignition": 1}', b"[" * 9999]
)
def test_what_is_no_config_fails_the_first_check_and_skips_the_rest(content: bytes) -> None:
    found = findings(content)
    assert found.pop("S1").outcome is Outcome.FAILED
    assert {finding.outcome for finding in found.values()} == {Outcome.SKIPPED}


@pytest.mark.parametrize("version", ["2.2.0", "3.6.0", "3.2.0-experimental", "3.2", "", "3.2.0\n"])
def test_another_version_fails_the_first_check_alone(version: str) -> None:
    changed = plain().whole(lambda value: value["ignition"].update(version=version))
    assert failures(changed.content) - {"S11"} == {"S1"}


@pytest.mark.parametrize("version", ["3.0.0", "3.1.0", "3.2.0", "3.5.0"])
def test_every_known_version_passes(version: str) -> None:
    assert not failures(bootstrap_config("4.18", version=version))


def _twice(value: Json) -> None:
    entries(value).append(dict(entry(value, "/etc/motd")))


def _relative(value: Json) -> None:
    entry(value, "/etc/motd")["path"] = "etc/motd"


def _taken_by_directory(value: Json) -> None:
    value["storage"]["directories"] = [{"path": "/etc/motd"}]


def _almost_twice(value: Json) -> None:
    entries(value).append({"path": "/etc//motd", "contents": {"source": "data:,x"}})


def _octal(value: Json) -> None:
    entry(value, BOOTKUBE)["mode"] = "0555"


def _too_wide(value: Json) -> None:
    entry(value, BOOTKUBE)["mode"] = 4096


def _true(value: Json) -> None:
    entry(value, BOOTKUBE)["mode"] = True


def _broken_base64(value: Json) -> None:
    entry(value, "/opt/openshift/auth/kubeconfig")["contents"]["source"] = "data:;base64,!!!"


def _broken_append(value: Json) -> None:
    entry(value, "/etc/motd")["append"][0]["source"] = "data:;base64,!!!"


def _wrong_hash(value: Json) -> None:
    contents = entry(value, "/opt/openshift/auth/kubeconfig")["contents"]
    contents["verification"] = {"hash": "sha512-" + "0" * 128}


def _broken_gzip(value: Json) -> None:
    entry(value, "/opt/openshift/auth/kubeconfig")["contents"]["compression"] = "gzip"


@pytest.mark.parametrize(
    ("check", "change"),
    [
        ("S2", lambda value: value["ignition"].update(config={"replace": {"source": "https://x.example/y"}})),
        ("S2", lambda value: value["ignition"].update(config={"merge": [{"source": "https://x.example/y"}]})),
        ("S3", _twice),
        ("S3", _relative),
        ("S3", _taken_by_directory),
        ("S3", _almost_twice),
        ("S4", _octal),
        ("S4", _too_wide),
        ("S4", _true),
        ("S5", _broken_base64),
        ("S5", _broken_append),
        ("S5", _wrong_hash),
        ("S5", _broken_gzip),
        ("S7", lambda value: entries(value).remove(entry(value, RELEASE_IMAGE))),
        ("S7", lambda value: entries(value).remove(entry(value, SERVICE_RECORD))),
        ("S7", lambda value: entries(value).remove(entry(value, BOOTKUBE))),
        ("S8", lambda value: value["systemd"]["units"].remove(unit(value))),
        ("S8", lambda value: unit(value).update(mask=True)),
        ("S8", lambda value: unit(value).update(contents="[Service]\nExecStart=/bin/true\n")),
        ("S8", lambda value: unit(value).update(contents="[Service]\n#ExecStart=/usr/local/bin/bootkube.sh\n")),
        ("S11", lambda value: entry(value, BOOTKUBE).update(user={"id": 0, "name": "root"})),
        ("S11", lambda value: value["storage"]["files"].append(7)),
    ],
)
def test_a_broken_structure_fails_its_check(check: str, change: Callable[[Json], None]) -> None:
    # Ignition's own rules overlap with most of these.
    assert failures(plain().whole(change).content) - {"S11"} == {check} - {"S11"}
    if check == "S11":
        assert failures(plain().whole(change).content) == {"S11"}


def test_nothing_but_a_name_makes_a_pointer() -> None:
    changed = plain().whole(
        lambda value: value["ignition"].update(config={"replace": {"verification": {}}, "merge": []})
    )
    assert not failures(changed.content)


def test_bootstrap_in_place_fails() -> None:
    assert failures(bootstrap_config("4.18", in_place=True)) == {"S9"}


def test_a_comment_about_bootstrap_in_place_does_not_fail() -> None:
    commented = plain().replaced(
        "bootkube", "BOOTSTRAP_INPLACE=false", "BOOTSTRAP_INPLACE=false # BOOTSTRAP_INPLACE=true"
    )
    assert not failures(commented.content)


@pytest.mark.parametrize("platform", ["aws", "powervs", "vsphere"])
def test_a_file_that_its_secret_cannot_hold_fails(platform: str) -> None:
    big = bootstrap_config("4.18", padding_bytes=LIMIT_BYTES * 3 // 4)
    assert len(big) > LIMIT_BYTES
    assert failures(big, platform=platform) == {"S6"}


def test_a_file_that_nearly_fills_its_secret_warns() -> None:
    big = bootstrap_config("4.18", padding_bytes=WARNING_BYTES * 3 // 4)
    assert WARNING_BYTES < len(big) < LIMIT_BYTES
    assert (failures(big), warnings(big)) == (set(), {"S6"})


def test_size_is_no_matter_where_no_secret_carries_the_file() -> None:
    big = bootstrap_config("4.18", padding_bytes=LIMIT_BYTES)
    assert findings(big, platform="gcp")["S6"].outcome is Outcome.SKIPPED


def test_an_unknown_platform_is_said_to_be_unknown() -> None:
    changed = plain().without("/opt/openshift/manifests/cluster-config.yaml")
    finding = findings(changed.content)["S6"]
    assert finding.outcome is Outcome.SKIPPED
    assert "--platform" in finding.evidence


def test_the_platform_is_found_in_the_file() -> None:
    assert findings(bootstrap_config("4.18", platform="vsphere"))["S6"].outcome is Outcome.PASSED


def expiring(seconds_left: float) -> tuple[bytes, float]:
    """A config whose certificate ends that many seconds after the moment that is given along."""
    authority = Authority.create("root-ca", NOW, timedelta(hours=24), key_type=KeyType.ECDSA_P256)
    changed = plain().with_text("/opt/openshift/tls/root-ca.crt", authority.certificate_pem.decode())
    changed = changed.with_text("/opt/openshift/tls/kube-apiserver-lb-server.crt", authority.certificate_pem.decode())
    return changed.content, (NOW + timedelta(hours=24)).timestamp() - seconds_left


@pytest.mark.parametrize(
    ("left", "outcome"),
    [
        (WARNING_SECONDS + 60, Outcome.PASSED),
        (WARNING_SECONDS - 60, Outcome.WARNED),
        (FAILURE_SECONDS + 60, Outcome.WARNED),
        (FAILURE_SECONDS - 60, Outcome.FAILED),
        (-60, Outcome.FAILED),
    ],
)
def test_the_expiry_clock_warns_and_then_fails(left: float, outcome: Outcome) -> None:
    content, now = expiring(left)
    assert findings(content, now=now)["S10"].outcome is outcome


def test_the_expiry_clock_tells_the_time() -> None:
    content, now = expiring(3600 + 120)
    assert "1h02m left" in findings(content, now=now)["S10"].evidence
    assert time_left(BootstrapFacts(content, now=now)) == "1h02m left"
    content, now = expiring(-7200)
    assert "expired 2h00m ago" in findings(content, now=now)["S10"].evidence


def test_without_a_clock_or_certificates_nothing_expires() -> None:
    assert findings(plain().content)["S10"].outcome is Outcome.SKIPPED
    bare = plain().without("/opt/openshift/tls/root-ca.crt").without("/opt/openshift/tls/kube-apiserver-lb-server.crt")
    assert findings(bare.content, now=NOW.timestamp())["S10"].outcome is Outcome.SKIPPED
    assert time_left(BootstrapFacts(bare.content, now=NOW.timestamp())) is None
    assert time_left(BootstrapFacts(plain().content)) is None
    assert time_left(BootstrapFacts(b"", now=0)) is None


def test_structure_is_judged_whatever_the_profile() -> None:
    for name in ("native", "patched"):
        found = findings(replace(subject(name)).content)
        assert all(found[f"S{number}"].outcome is Outcome.PASSED for number in (1, 2, 3, 4, 5, 6, 7, 8, 9, 11))


def test_reformatting_the_json_is_no_fault() -> None:
    value = json.loads(plain().content)
    assert not failures(json.dumps(value, indent=4, sort_keys=True).encode())
