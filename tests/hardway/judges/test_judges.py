"""Judges: programs that look at a copy of the artifacts, what each refuses, and what git would take."""

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies
from tests.support.hardway import cluster
from tests.support.hardway_judges import after, bench, current, find
from tests.support.hardway_lint import Subject
from tests.support.hardway_pki import reissue

from umbilical.bootstrap.names import BOOTKUBE
from umbilical.checks.check import Outcome
from umbilical.checks.report import group_of
from umbilical.hardway.artifacts.infrastructure.places import HAPROXY_FINAL
from umbilical.hardway.config.cluster import Profile
from umbilical.hardway.judges.bench import Bench, judge_by, on_path, open_bench
from umbilical.hardway.judges.catalogue import (
    GROUP,
    JUDGES,
    ask_judges,
    balancer_faults,
    certificate_faults,
    ignition_faults,
    lost,
    object_faults,
    scripts,
    style_faults,
    syntax_faults,
)
from umbilical.hardway.judges.etcd import etcd_faults
from umbilical.hardway.judges.exposure import exposed, secret_files
from umbilical.hardway.lint.facts import Unreadable
from umbilical.manifests.tree import Asset
from umbilical.pki.profiles import Usage

JSON = strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.integers() | strategies.text(max_size=3),
    lambda inner: strategies.lists(inner, max_size=3) | strategies.dictionaries(strategies.text(max_size=3), inner),
    max_leaves=12,
)
BROKEN = b"#!/bin/bash\nif true; then\n"
CARELESS = b"#!/bin/bash\ncd $1\nrm -rf *\nx=1\n"
ASSETS = {
    "tls/admin.key": Asset("tls/admin.key", b"", 0o600),
    "tls/admin.crt": Asset("tls/admin.crt", b"", 0o644),
}
SECRETS = (
    ".umbilical/admin.kubeconfig",
    ".umbilical/identity.json",
    "artifacts/tls/admin.key",
    "pull-secret.json",
)


def _found(judge: Callable[[Bench], list[str]], subject: Subject) -> list[str]:
    with bench(subject) as opened:
        return judge(opened)


def test_the_copy_is_for_us_alone_and_goes() -> None:
    subject = current(Profile.KUBERNETES)
    with open_bench(subject.facts()) as bench:
        key = bench.file("tls/root-ca.key" if "tls/root-ca.key" in subject.assets else "tls/etcd-signer.key")
        assert key.stat().st_mode & 0o077 == 0
        assert bench.folder.stat().st_mode & 0o077 == 0
        assert len([path for path in bench.folder.rglob("*") if path.is_file()]) == len(subject.assets)
    assert not bench.folder.exists()


def test_a_program_is_run_and_all_that_it_says_is_kept() -> None:
    with open_bench(current(Profile.KUBERNETES).facts()) as bench:
        said = bench.run("bash", "-c", "cat; echo no >&2; exit 3", stdin=b"yes\n")
        assert (said.status, said.lines) == (3, ["no", "yes"])


def _hangs(bench: Bench) -> list[str]:
    raise subprocess.TimeoutExpired(["/usr/bin/etcd"], 3)


def _misses(bench: Bench) -> list[str]:
    raise Unreadable("x is missing")


@pytest.mark.parametrize(("search", "told"), [(_hangs, "etcd did not end within 3 s"), (_misses, "x is missing")])
def test_what_goes_wrong_is_a_fault(search: object, told: str) -> None:
    assert callable(search)
    check = judge_by("EXT-99", "title", "why", "fix", search, "bash")
    with open_bench(current(Profile.KUBERNETES).facts()) as bench:
        verdict = check.judge(bench)
    assert (verdict.outcome, verdict.evidence) == (Outcome.FAILED, told)


def test_advice_warns() -> None:
    check = judge_by("EXT-99", "title", "why", "fix", lambda bench: ["one", "two"], is_advice=True)
    with open_bench(current(Profile.KUBERNETES).facts()) as bench:
        verdict = check.judge(bench)
    assert (verdict.outcome, verdict.evidence) == (Outcome.WARNED, "one; two")


def test_programs_are_found_on_path() -> None:
    found = on_path("bash")
    assert isinstance(found, Path)
    assert on_path("no-such-program-anywhere") is None


@pytest.mark.real("openssl", "haproxy", "shellcheck", "ignition-validate", "etcd", "etcdctl", "kubectl")
@pytest.mark.parametrize("profile", list(Profile))
def test_all_judges_are_content_with_what_is_rendered(profile: Profile) -> None:
    findings = ask_judges(current(profile).facts(), find)
    assert {finding.id: finding.evidence for finding in findings if finding.outcome is not Outcome.PASSED} == {}
    assert len(findings) == len(JUDGES)


def test_a_judge_whose_program_is_missing_is_skipped_and_says_which() -> None:
    findings = ask_judges(current(Profile.KUBERNETES).facts(), lambda name: None)
    assert {finding.outcome for finding in findings} == {Outcome.SKIPPED}
    assert "there is no program etcd, etcdctl" in {finding.evidence for finding in findings}


def test_without_judges_no_copy_is_made() -> None:
    def refuse(name: str) -> Path | None:
        raise AssertionError(name)

    assert ask_judges(current(Profile.KUBERNETES).facts(), refuse, ()) == []


def test_judges_have_ids_of_their_own() -> None:
    assert len({judge.id for judge in JUDGES}) == len(JUDGES)
    assert {group_of(judge.id) for judge in JUDGES} == {GROUP}


@pytest.mark.real("haproxy")
def test_a_warning_is_a_fault() -> None:
    faults = _found(
        balancer_faults, after(Profile.OPENSHIFT, lambda tree: tree.replace(HAPROXY_FINAL, "option httpchk", "# "))
    )
    assert any("http-check" in fault for fault in faults)


@pytest.mark.real("haproxy")
def test_a_word_that_haproxy_does_not_know_is_a_fault() -> None:
    faults = _found(
        balancer_faults, after(Profile.KUBERNETES, lambda tree: tree.replace(HAPROXY_FINAL, "balance", "balanced"))
    )
    assert any("unknown keyword" in fault for fault in faults)


@pytest.mark.real("openssl")
def test_a_certificate_for_another_purpose_is_refused() -> None:
    subject = current(Profile.KUBERNETES)
    reissue(subject, "etcd-serving-bootstrap", subject.now, usages=(Usage.SERVER,))
    told = " ".join(_found(certificate_faults, subject))
    assert "sslclient" in told
    assert "etcd-serving-bootstrap.crt" in told


@pytest.mark.real("openssl")
def test_another_signers_bundle_is_refused() -> None:
    def swap(subject: Subject) -> None:
        other = subject.assets["tls/aggregator-signer.crt"].content
        subject.write("tls/bundles/etcd-ca-bundle.crt", other)

    told = " ".join(_found(certificate_faults, after(Profile.KUBERNETES, swap)))
    assert "unable to get local issuer certificate" in told
    assert "umbilical-judges" not in told


@pytest.mark.real("openssl")
def test_what_is_missing_is_named() -> None:
    faults = _found(certificate_faults, after(Profile.KUBERNETES, lambda tree: tree.remove("tls/etcd-client.crt")))
    assert "tls/etcd-client.crt is missing" in faults


@pytest.mark.real("etcd", "etcdctl")
def test_a_serving_certificate_that_is_no_clients_is_found() -> None:
    subject = current(Profile.KUBERNETES)
    reissue(subject, "etcd-serving-bootstrap", subject.now, usages=(Usage.SERVER,))
    (fault,) = _found(etcd_faults, subject)
    assert "does not take its own serving certificate" in fault


@pytest.mark.real("etcd", "etcdctl")
def test_a_key_of_another_is_found_and_no_path_of_ours_is_told() -> None:
    def swap(tree: Subject) -> None:
        tree.write("tls/etcd-serving-bootstrap.key", tree.assets["tls/etcd-peer-bootstrap.key"].content)

    (fault,) = _found(etcd_faults, after(Profile.KUBERNETES, swap))
    assert "private key does not match public key" in fault


@pytest.mark.real("etcd", "etcdctl")
def test_a_key_that_is_missing_is_named() -> None:
    assert _found(etcd_faults, after(Profile.KUBERNETES, lambda tree: tree.remove("tls/etcd-client.key"))) == [
        "tls/etcd-client.key is missing"
    ]


@pytest.mark.real("ignition-validate")
def test_every_config_of_the_smallest_cluster_is_taken() -> None:
    assert [_found(ignition_faults, current(profile, 1, 0)) for profile in Profile] == [[], []]


@pytest.mark.real("ignition-validate")
def test_a_config_that_would_not_boot_is_a_fault() -> None:
    subject = after(Profile.KUBERNETES, lambda tree: tree.replace("ignition/worker-0.ign", '"mode":384', '"mode":-1'))
    with bench(subject) as opened:
        (fault,) = ignition_faults(opened)
    assert fault.startswith("ignition/worker-0.ign: ")


@pytest.mark.real("ignition-validate")
def test_a_missing_config_is_a_fault() -> None:
    with bench(after(Profile.KUBERNETES, lambda tree: tree.remove("ignition/worker-0.ign"))) as opened:
        assert ignition_faults(opened) == ["ignition/worker-0.ign is missing"]


def _pod(subject: Subject) -> str:
    names = [path for path in sorted(subject.assets) if path.startswith("static-pods/bootstrap/")]
    return next(path for path in names if b"kind: Pod" in subject.assets[path].content)


@pytest.mark.real("kubectl")
def test_a_field_of_the_wrong_type_is_a_fault() -> None:
    def spoil(subject: Subject) -> None:
        subject.edit(_pod(subject), lambda pod: pod["spec"].update(priority="high"))

    (fault,) = _found(object_faults, after(Profile.KUBERNETES, spoil))
    assert "cannot unmarshal string" in fault
    assert fault.startswith("static-pods/bootstrap/")


@pytest.mark.real("kubectl")
def test_several_faults_are_told_one_by_one() -> None:
    def spoil(subject: Subject) -> None:
        subject.edit(_pod(subject), lambda pod: pod["spec"].update(priority="high"))
        path = next(path for path in subject.assets if path.startswith("manifests/") and path.endswith(".yaml"))
        subject.write(path, b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {b: 1}\n")

    assert len(_found(object_faults, after(Profile.KUBERNETES, spoil))) == 2


@pytest.mark.real("kubectl")
def test_a_misspelt_field_is_a_fault() -> None:
    def spoil(subject: Subject) -> None:
        subject.edit(_pod(subject), lambda pod: pod["spec"].update(hostNetworks=True))

    (fault,) = _found(object_faults, after(Profile.KUBERNETES, spoil))
    assert fault.endswith("kubectl knows no spec.hostNetworks")


def test_where_nothing_is_there_nothing_is_shown() -> None:
    subject = current(Profile.KUBERNETES)
    subject.assets = {}
    assert _found(object_faults, subject) == ["there is nothing to decode"]


def test_empty_values_may_go() -> None:
    assert list(lost({"a": "", "b": {"c": False, "d": 1}, "e": [{"f": 2}]}, {"b": {}, "e": [{}]})) == ["b.d", "e[0].f"]


@hypothesis.given(JSON)
def test_nothing_is_lost_between_equals(value: object) -> None:
    assert list(lost(value, value)) == []


def test_scripts_are_found_on_disk_and_on_nodes() -> None:
    with bench(current(Profile.OPENSHIFT)) as opened:
        names = [name for name, _ in scripts(opened)]
    assert "infrastructure/host-plan.sh" in names
    assert f"bootstrap:{BOOTKUBE}" in names


@pytest.mark.parametrize("profile", list(Profile))
def test_bash_reads_them_all(profile: Profile) -> None:
    with bench(current(profile)) as opened:
        assert syntax_faults(opened) == []


def test_a_script_on_a_node_that_does_not_parse_is_a_fault() -> None:
    subject = after(Profile.KUBERNETES, lambda tree: tree.edit_ignition("bootstrap", BOOTKUBE, lambda _: BROKEN))
    with bench(subject) as opened:
        (fault,) = syntax_faults(opened)
    assert fault.startswith(f"bootstrap:{BOOTKUBE}: ")


def test_a_config_that_cannot_be_read_is_others_business() -> None:
    def spoil(tree: Subject) -> None:
        tree.write("ignition/bootstrap.ign", b"{")

    with bench(after(Profile.KUBERNETES, spoil)) as opened:
        assert syntax_faults(opened) == []


@pytest.mark.real("shellcheck")
def test_shellcheck_tells_where() -> None:
    with bench(after(Profile.KUBERNETES, lambda tree: tree.write("x.sh", CARELESS))) as opened:
        faults = style_faults(opened)
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
