"""Validators: programs that check a copy of the artifacts, what each rejects, and secret files that git would add."""

import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Final

import hypothesis
import pytest
from hypothesis import strategies
from tests.support.hardway import cluster
from tests.support.hardway_everything import inputs, rendered
from tests.support.hardway_lint import Sample, Subject, changed, copied, replaced
from tests.support.hardway_pki import reissue

import peers
from umbilical.bootstrap.names import BOOTKUBE
from umbilical.checks.check import Outcome
from umbilical.checks.report import group_of
from umbilical.hardway.artifacts.infrastructure.places import HAPROXY_FINAL
from umbilical.hardway.config.cluster import ClusterProfile
from umbilical.hardway.lint.facts import Unreadable
from umbilical.hardway.validators.catalogue import (
    GROUP,
    VALIDATORS,
    balancer_faults,
    certificate_faults,
    ignition_faults,
    lost,
    object_faults,
    run_validators,
    style_faults,
    syntax_faults,
)
from umbilical.hardway.validators.etcd import etcd_faults
from umbilical.hardway.validators.exposure import exposed, secret_files
from umbilical.hardway.validators.scratch import ScratchCopy, on_path, open_scratch, validator
from umbilical.manifests.tree import Asset
from umbilical.pki.profiles import Usage

Search = Callable[[ScratchCopy], list[str]]
JSON = strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.integers() | strategies.text(max_size=3),
    lambda inner: strategies.lists(inner, max_size=3) | strategies.dictionaries(strategies.text(max_size=3), inner),
    max_leaves=12,
)
BROKEN = b"#!/bin/bash\nif true; then\n"
CARELESS = b"#!/bin/bash\ncd $1\nrm -rf *\nx=1\n"
ASSETS = {"tls/admin.key": Asset("tls/admin.key", b"", 0o600), "tls/admin.crt": Asset("tls/admin.crt", b"", 0o644)}
SECRETS = (".umbilical/admin.kubeconfig", ".umbilical/identity.json", "artifacts/tls/admin.key", "pull-secret.json")


@cache
def _current(profile: ClusterProfile) -> Subject:
    now = datetime.now(UTC)
    return replace(rendered(inputs(cluster(profile, 1, 1), now)), now=now)


def current(profile: ClusterProfile) -> Subject:
    """A copy with certificates that are valid now, because programs use the real time."""
    return copied(_current(profile))


def after(sample: Sample) -> Subject:
    return changed(current(ClusterProfile.KUBERNETES), sample)


def find(name: str) -> Path | None:
    """Peers from the cache, the rest from PATH."""
    return peers.binary(name) if name in {"etcd", "etcdctl", "kubectl", "ignition-validate"} else on_path(name)


def _found(search: Search, subject: Subject) -> list[str]:
    with open_scratch(subject.facts(), find) as scratch:
        return search(scratch)


def test_the_copy_is_for_us_alone_and_goes() -> None:
    subject = current(ClusterProfile.KUBERNETES)
    with open_scratch(subject.facts()) as scratch:
        key = scratch.file("tls/root-ca.key" if "tls/root-ca.key" in subject.assets else "tls/etcd-signer.key")
        assert key.stat().st_mode & 0o077 == 0
        assert scratch.folder.stat().st_mode & 0o077 == 0
        assert len([path for path in scratch.folder.rglob("*") if path.is_file()]) == len(subject.assets)
    assert not scratch.folder.exists()


def test_a_program_is_run_and_all_that_it_says_is_kept() -> None:
    with open_scratch(current(ClusterProfile.KUBERNETES).facts()) as scratch:
        said = scratch.run("bash", "-c", "cat; echo no >&2; exit 3", stdin=b"yes\n")
        assert (said.status, said.lines) == (3, ["no", "yes"])


def _hangs(scratch: ScratchCopy) -> list[str]:
    raise subprocess.TimeoutExpired(["/usr/bin/etcd"], 3)


def _misses(scratch: ScratchCopy) -> list[str]:
    raise Unreadable("x is missing")


@pytest.mark.parametrize(("search", "told"), [(_hangs, "etcd did not finish within 3 s"), (_misses, "x is missing")])
def test_what_goes_wrong_is_a_fault(search: object, told: str) -> None:
    assert callable(search)
    check = validator("EXT-99", "title", "why", "fix", search, "bash")
    with open_scratch(current(ClusterProfile.KUBERNETES).facts()) as scratch:
        verdict = check.judge(scratch)
    assert (verdict.outcome, verdict.evidence) == (Outcome.FAILED, told)


def test_advice_warns() -> None:
    check = validator("EXT-99", "title", "why", "fix", lambda scratch: ["one", "two"], is_advice=True)
    with open_scratch(current(ClusterProfile.KUBERNETES).facts()) as scratch:
        verdict = check.judge(scratch)
    assert (verdict.outcome, verdict.evidence) == (Outcome.WARNED, "one; two")


def test_programs_are_found_on_path() -> None:
    found = on_path("bash")
    assert isinstance(found, Path)
    assert on_path("no-such-program-anywhere") is None


@pytest.mark.real("openssl", "haproxy", "shellcheck", "ignition-validate", "etcd", "etcdctl", "kubectl")
@pytest.mark.parametrize("profile", list(ClusterProfile))
def test_all_validators_accept_what_is_rendered(profile: ClusterProfile) -> None:
    findings = run_validators(current(profile).facts(), find)
    assert {finding.id: finding.evidence for finding in findings if finding.outcome is not Outcome.PASSED} == {}
    assert len(findings) == len(VALIDATORS)


def test_a_validator_whose_program_is_missing_is_skipped_and_says_which() -> None:
    findings = run_validators(current(ClusterProfile.KUBERNETES).facts(), lambda name: None)
    assert {finding.outcome for finding in findings} == {Outcome.SKIPPED}
    assert "program not found: etcd, etcdctl" in {finding.evidence for finding in findings}


def test_without_validators_no_copy_is_made() -> None:
    def refuse(name: str) -> Path | None:
        raise AssertionError(name)

    assert run_validators(current(ClusterProfile.KUBERNETES).facts(), refuse, ()) == []


def test_validators_have_ids_of_their_own() -> None:
    assert len({one.id for one in VALIDATORS}) == len(VALIDATORS)
    assert {group_of(judge.id) for judge in VALIDATORS} == {GROUP}


def _copied(path: str, other: str) -> Sample:
    """Another file's content in the place of a file's own."""
    return lambda tree: tree.write(path, tree.assets[other].content)


def _removed(path: str) -> Sample:
    return lambda tree: tree.remove(path)


def _serving_alone(tree: Subject) -> None:
    reissue(tree, "etcd-serving-bootstrap", tree.now, usages=(Usage.SERVER,))


def _pod(subject: Subject) -> str:
    names = [path for path in sorted(subject.assets) if path.startswith("static-pods/bootstrap/")]
    return next(path for path in names if b"kind: Pod" in subject.assets[path].content)


def _with_field(**fields: object) -> Sample:
    """Change the spec of a static pod."""
    return lambda tree: tree.edit(_pod(tree), lambda pod: pod["spec"].update(fields))


PROGRAMS: Final[dict[Search, tuple[str, ...]]] = {
    balancer_faults: ("haproxy",),
    certificate_faults: ("openssl",),
    etcd_faults: ("etcd", "etcdctl"),
    ignition_faults: ("ignition-validate",),
    object_faults: ("kubectl",),
}
TELL_ALL: Final = (balancer_faults, certificate_faults)
"""These may say more than one thing of one fault."""
FAULTS: Final[dict[str, tuple[Search, Sample, tuple[str, ...]]]] = {
    "a warning": (balancer_faults, replaced(HAPROXY_FINAL, "option httpchk", "# "), ("http-check",)),
    "an unknown word": (balancer_faults, replaced(HAPROXY_FINAL, "balance", "balanced"), ("unknown keyword",)),
    "another purpose": (certificate_faults, _serving_alone, ("sslclient", "etcd-serving-bootstrap.crt")),
    "another signer's bundle": (
        certificate_faults,
        _copied("tls/bundles/etcd-ca-bundle.crt", "tls/aggregator-signer.crt"),
        ("unable to get local issuer certificate",),
    ),
    "no certificate": (certificate_faults, _removed("tls/etcd-client.crt"), ("tls/etcd-client.crt is missing",)),
    "no client's certificate": (etcd_faults, _serving_alone, ("rejects its own serving certificate",)),
    "a key of another": (
        etcd_faults,
        _copied("tls/etcd-serving-bootstrap.key", "tls/etcd-peer-bootstrap.key"),
        ("private key does not match public key",),
    ),
    "no key": (etcd_faults, _removed("tls/etcd-client.key"), ("tls/etcd-client.key is missing",)),
    "a mode below nought": (
        ignition_faults,
        replaced("ignition/worker-0.ign", '"mode":384', '"mode":-1'),
        ("ignition/worker-0.ign: ",),
    ),
    "no config": (ignition_faults, _removed("ignition/worker-0.ign"), ("ignition/worker-0.ign is missing",)),
    "a wrong type": (
        object_faults,
        _with_field(priority="high"),
        ("static-pods/bootstrap/", "cannot unmarshal string"),
    ),
    "a misspelt field": (
        object_faults,
        _with_field(hostNetworks=True),
        ("unknown field spec.hostNetworks",),
    ),
}


@pytest.mark.parametrize(
    ("search", "sample", "words"),
    [pytest.param(*case, marks=pytest.mark.real(*PROGRAMS[case[0]]), id=name) for name, case in FAULTS.items()],
)
def test_a_fault_is_told_by_its_artifact_and_no_other_path(
    search: Search, sample: Sample, words: tuple[str, ...]
) -> None:
    faults = _found(search, after(sample))
    told = "\n".join(faults)
    assert [word for word in words if word not in told] == []
    assert len(faults) == 1 or search in TELL_ALL
    assert "umbilical-validators" not in told


@pytest.mark.real("kubectl")
def test_several_faults_are_told_one_by_one() -> None:
    def spoil(subject: Subject) -> None:
        _with_field(priority="high")(subject)
        path = next(path for path in subject.assets if path.startswith("manifests/") and path.endswith(".yaml"))
        subject.write(path, b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {b: 1}\n")

    assert len(_found(object_faults, after(spoil))) == 2


def test_where_nothing_is_there_nothing_is_shown() -> None:
    subject = current(ClusterProfile.KUBERNETES)
    subject.assets = {}
    assert _found(object_faults, subject) == ["there are no manifests and no static pods"]


def test_empty_values_may_go() -> None:
    assert list(lost({"a": "", "b": {"c": False, "d": 1}, "e": [{"f": 2}]}, {"b": {}, "e": [{}]})) == ["b.d", "e[0].f"]


@hypothesis.given(JSON)
def test_nothing_is_lost_between_equals(value: object) -> None:
    assert list(lost(value, value)) == []


@pytest.mark.parametrize("profile", list(ClusterProfile))
def test_bash_reads_them_all(profile: ClusterProfile) -> None:
    assert _found(syntax_faults, current(profile)) == []


def test_a_script_on_a_node_that_does_not_parse_is_a_fault() -> None:
    subject = after(lambda tree: tree.edit_ignition("bootstrap", BOOTKUBE, lambda _: BROKEN))
    (fault,) = _found(syntax_faults, subject)
    assert fault.startswith(f"bootstrap:{BOOTKUBE}: ")


def test_a_config_that_cannot_be_read_is_others_business() -> None:
    subject = after(lambda tree: tree.write("ignition/bootstrap.ign", b"{"))
    assert _found(syntax_faults, subject) == []


@pytest.mark.real("shellcheck")
def test_shellcheck_tells_where() -> None:
    faults = _found(style_faults, after(lambda tree: tree.write("x.sh", CARELESS)))
    assert any(fault.startswith("x.sh:2:") for fault in faults)


def _git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True, timeout=60)


@pytest.fixture
def repository_folder(tmp_path: Path) -> Path:
    _git(tmp_path, "init", "-q")
    return tmp_path


def test_keys_and_the_pull_secret_are_secret_and_certificates_are_not() -> None:
    assert tuple(sorted(secret_files(cluster(), ASSETS))) == SECRETS


def test_a_pull_secret_elsewhere_is_not_in_the_directory() -> None:
    of = cluster()
    for place in ("/root/pull-secret.json", "../pull-secret.json"):
        moved = replace(of, access=replace(of.access, pull_secret_file=place))
        assert place not in secret_files(moved, {})


def test_without_git_nothing_is_exposed(tmp_path: Path) -> None:
    assert exposed(tmp_path, cluster(), ASSETS) == ()


@pytest.mark.real("git")
def test_below_a_work_tree_everything_is_until_it_is_ignored(repository_folder: Path) -> None:
    folder = repository_folder / "clusters" / "one"
    folder.mkdir(parents=True)
    assert exposed(folder, cluster(), ASSETS) == SECRETS
    (folder / ".gitignore").write_text("artifacts\n.umbilical\n")
    assert exposed(folder, cluster(), ASSETS) == ("pull-secret.json",)
    (repository_folder / ".gitignore").write_text("*.json\n")
    assert exposed(folder, cluster(), ASSETS) == ()


@pytest.mark.real("git")
def test_what_is_tracked_already_is_exposed_whatever_is_ignored(repository_folder: Path) -> None:
    (repository_folder / "artifacts" / "tls").mkdir(parents=True)
    (repository_folder / "artifacts" / "tls" / "admin.key").write_text("")
    _git(repository_folder, "add", "artifacts")
    (repository_folder / ".gitignore").write_text("artifacts\n.umbilical\npull-secret.json\n")
    assert exposed(repository_folder, cluster(), ASSETS) == ("artifacts/tls/admin.key",)


def test_where_git_cannot_answer_nothing_counts_as_ignored(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: /nowhere\n")
    assert exposed(tmp_path, cluster(), ASSETS) == SECRETS
