"""F1 to F9: presence, modes and owner of each role's file, and that none carries a secret."""

import base64
from typing import Any

import pytest
from tests.support.verify_subjects import NAMES, failures, findings, subject

from umbilical.assets.names import OWN, RECEIPT
from umbilical.assets.verify.files import FILES, ROLES
from umbilical.checks.check import Outcome

NUMBERS = {role: f"F{number}" for number, role in enumerate(ROLES, 1)}
KEY = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"


def test_the_checks_are_numbered() -> None:
    assert [check.id for check in FILES] == [f"F{number}" for number in range(1, 10)]


@pytest.mark.parametrize(
    ("name", "role"),
    # The seed shape's agents live in kube-system, which needs no file.
    [(name, role) for name in NAMES for role in ROLES if (name, role) != ("seed", "namespace")],
)
@pytest.mark.parametrize(
    "changes",
    [
        {"mode": 0o644},
        {"mode": None},
        {"user": {"name": "core"}},
        {"user": None},
        {"user": {"id": 1000}},
        {"group": {"name": "wheel"}},
        {"overwrite": False},
        {"overwrite": None},
    ],
    ids=str,
)
def test_a_wrong_mode_owner_or_way_of_writing_fails_that_file(name: str, role: str, changes: dict[str, Any]) -> None:
    assert failures(subject(name).entry(role, **changes).content) == {NUMBERS[role]}


@pytest.mark.parametrize("role", ROLES)
def test_root_by_its_number_is_root(role: str) -> None:
    assert not failures(subject("patched").entry(role, user={"id": 0}, group={"id": 0}).content)


@pytest.mark.parametrize("name", ["native", "patched"])
@pytest.mark.parametrize("role", ROLES)
def test_a_missing_file_fails(name: str, role: str) -> None:
    found = failures(subject(name).without(role).content)
    assert NUMBERS[role] in found
    # A missing namespace is one that nobody makes; the installer's library is how its tunnel is known at all.
    assert found - {NUMBERS[role]} <= {"C7"}


@pytest.mark.parametrize("role", ROLES)
def test_a_file_that_is_there_twice_fails(role: str) -> None:
    patched = subject("patched")

    def double(value: dict[str, Any]) -> None:
        files = value["storage"]["files"]
        files.append(next(file for file in files if file["path"] == patched.path(role)))

    assert failures(patched.whole(double).content) >= {NUMBERS[role], "S3"}


def test_a_file_without_content_fails() -> None:
    assert "F1" in failures(subject("patched").entry("egress", contents={}).content)


def test_the_namespace_file_is_not_asked_for_where_agents_live_in_kube_system() -> None:
    finding = findings(subject("seed").content)["F4"]
    assert finding.outcome is Outcome.SKIPPED
    assert "kube-system" in finding.evidence


@pytest.mark.parametrize("path", [f"{OWN.pki_directory}/agent/tls.key", "/opt/openshift/umbilical/ca.crt"])
def test_an_embedded_key_or_certificate_fails(path: str) -> None:
    source = "data:;base64," + base64.b64encode(KEY.encode()).decode()
    file = {"path": path, "mode": 384, "overwrite": True, "user": {"name": "root"}, "contents": {"source": source}}
    changed = subject("patched").whole(lambda value: value["storage"]["files"].append(file))
    assert failures(changed.content) == {"F9"}


@pytest.mark.parametrize("role", ["library", "server_pod"])
def test_a_key_in_a_comment_of_ours_fails(role: str) -> None:
    patched = subject("patched")
    commented = "".join(f"# {line}\n" for line in KEY.splitlines())
    assert failures(patched.with_text(role, patched.text(role) + commented).content) == {"F9"}


@pytest.mark.parametrize("name", NAMES)
def test_a_secret_that_is_filled_in_already_fails(name: str) -> None:
    encoded = base64.b64encode(KEY.encode()).decode()
    changed = subject(name).edited("agent_secret", lambda value: value["data"].update({"tls.key": encoded}))
    assert failures(changed.content) == {"F9"}


def test_the_installers_own_keys_are_no_matter_of_ours() -> None:
    assert "PRIVATE KEY" in subject("patched").text("/opt/openshift/tls/kube-apiserver-lb-server.key")
    assert findings(subject("patched").content)["F9"].outcome is Outcome.PASSED


def test_the_receipt_may_quote_whatever_the_original_held() -> None:
    patched = subject("patched")
    quoted = patched.text(RECEIPT).replace('"version": 1,', '"version": 1, "note": "-----BEGIN PRIVATE KEY-----",')
    assert not failures(patched.with_text(RECEIPT, quoted).content)
