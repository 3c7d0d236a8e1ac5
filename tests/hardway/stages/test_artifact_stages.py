"""Stages 03 and 05 to 08: their inputs, their files, and their lint checks."""

import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.hardway_sites import make_site
from tests.support.made_up_stages import Lines
from tests.support.made_up_stages import make_site as made_up_site

from umbilical.checks.check import Outcome, Verdict, has_failed
from umbilical.checks.report import group_of
from umbilical.hardway import stage as judging
from umbilical.hardway.lint.catalogue import RULES
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Producing, Step, Undo
from umbilical.hardway.stages import artifact_stages, catalogue
from umbilical.hardway.stages.artifact_stages import MANIFESTS, lint_checks
from umbilical.hardway.stages.s01_prerequisites import STAGE
from umbilical.hardway.stages.s03_understand import STAGE as UNDERSTAND
from umbilical.hardway.stages.s03_understand import lines
from umbilical.manifests.tree import Asset

WRITING = [stage for stage in catalogue.stages() if 5 <= stage.number <= 8]


def _site(folder: Path) -> Site:
    assets = [
        Asset("manifests/01.yaml", b"one", 0o644),
        Asset("manifests/02.yaml", b"two", 0o600),
        Asset("auth/admin.kubeconfig", b"three", 0o600),
    ]
    files = {7: tuple(asset.path for asset in assets)}
    return made_up_site(folder, assets={asset.path: asset for asset in assets}, files=files)


def _act(steps: Iterable[Step]) -> None:
    for step in steps:
        step.act()


def _write(site: Site) -> None:
    _act(artifact_stages.writing_steps(site, 7))


def _verdict(site: Site) -> tuple[Outcome, str]:
    verdict = artifact_stages.written_check(7).judge(site)
    return verdict.outcome, verdict.evidence


def test_there_is_a_step_for_each_folder_with_its_inverse(tmp_path: Path) -> None:
    steps = artifact_stages.writing_steps(_site(tmp_path), 7, "in time")
    assert [(step.title, step.undo) for step in steps] == [
        ("write 1 file to artifacts/auth, in time", Undo("remove-files", {"paths": ["auth/admin.kubeconfig"]})),
        (
            "write 2 files to artifacts/manifests, in time",
            Undo("remove-files", {"paths": ["manifests/01.yaml", "manifests/02.yaml"]}),
        ),
    ]
    assert steps[0].command == "install -D -m 0600 /dev/stdin artifacts/auth/admin.kubeconfig"


def test_files_are_written_with_their_modes_and_folders_for_the_owner(tmp_path: Path) -> None:
    site = _site(tmp_path)
    _write(site)
    path = tmp_path / "artifacts" / "manifests" / "01.yaml"
    assert path.read_bytes() == b"one"
    assert path.stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "artifacts").stat().st_mode & 0o777 == 0o700
    assert _verdict(site) == (Outcome.PASSED, "")


def test_what_is_right_already_is_left_alone(tmp_path: Path) -> None:
    site = _site(tmp_path)
    _write(site)
    path = tmp_path / "artifacts" / "manifests" / "01.yaml"
    before = path.stat()
    _write(site)
    assert path.stat().st_ino == before.st_ino


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda path: path.unlink(), "manifests/01.yaml: No such file or directory"),
        (lambda path: path.write_bytes(b"x"), "manifests/01.yaml has different content"),
        (lambda path: path.chmod(0o666), "manifests/01.yaml has mode 0666, not 0644"),
        (
            lambda path: path.with_name("03.yaml").write_bytes(b"x"),
            "manifests/03.yaml is left from an earlier rendering",
        ),
    ],
)
def test_each_way_to_be_wrong_is_seen_and_mended(tmp_path: Path, change: object, said: str) -> None:
    site = _site(tmp_path)
    _write(site)
    assert callable(change)
    change(tmp_path / "artifacts" / "manifests" / "01.yaml")
    assert _verdict(site) == (Outcome.FAILED, said)
    _act([*artifact_stages.writing_steps(site, 7), *artifact_stages.sweeping_steps(site, 7)])
    assert _verdict(site)[0] is Outcome.PASSED


def test_keys_and_kubeconfigs_of_others_are_never_swept(tmp_path: Path) -> None:
    site = _site(tmp_path)
    _write(site)
    (tmp_path / "artifacts" / "auth" / "mine").write_bytes(b"x")
    assert artifact_stages.sweeping_steps(site, 7) == []


def test_a_stage_without_files_is_not_judged(tmp_path: Path) -> None:
    assert artifact_stages.written_check(4).judge(_site(tmp_path)).outcome is Outcome.SKIPPED


def test_a_hash_tells_content_and_mode(tmp_path: Path) -> None:
    site = _site(tmp_path)
    before = artifact_stages.hashes(site, 7)
    site.assets = {**site.assets, "manifests/01.yaml": Asset("manifests/01.yaml", b"one", 0o600)}
    after = artifact_stages.hashes(site, 7)
    assert [name for name in before if before[name] != after[name]] == ["manifests/01.yaml"]


@pytest.mark.parametrize("profile", ["kubernetes", "openshift"])
def test_after_their_steps_all_their_checks_pass(tmp_path: Path, profile: str) -> None:
    site = make_site(tmp_path, profile)
    for stage in WRITING:
        _act(stage.steps(site))
        found = judging.findings(stage, site)
        assert not has_failed(found), [one for one in found if one.outcome is Outcome.FAILED]
        assert all((tmp_path / "artifacts" / name).is_file() for name in site.files[stage.number])


def test_before_their_steps_the_first_check_fails(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    for stage in WRITING:
        assert judging.findings(stage, site)[0].outcome is Outcome.FAILED


def test_inputs_are_the_hashes_of_the_recipes_and_of_no_other(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    inputs = [stage.inputs(site) for stage in WRITING]
    assert [sorted(one) for one in inputs] == [
        ["pki"],
        ["kubeadmin", "kubeconfigs"],
        ["manifests", "static-pods"],
        ["ignition"],
    ]
    changed = replace(site, hashes={**site.hashes, "ignition": "other"})
    assert [stage.inputs(changed) == one for stage, one in zip(WRITING, inputs, strict=True)] == [True] * 3 + [False]


def test_a_stage_is_stale_when_what_it_is_made_from_is() -> None:
    assert [stage.needs for stage in WRITING[1:]] == [(5,), (4, 5, 6), (4, 5, 6, 7)]


def test_what_came_of_it_is_told_by_path(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    for stage in WRITING:
        assert isinstance(stage, Producing)
        assert set(stage.outputs(site)) == set(site.files[stage.number])


def test_groups_and_single_rules_are_chosen_for_the_profile(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    found = [check.id for check in lint_checks(site, ("KC",), ("BK-02",))]
    wanted = [
        rule.id
        for rule in RULES
        if site.cluster.profile in rule.profiles and (group_of(rule.id) == "KC" or rule.id == "BK-02")
    ]
    assert found == wanted
    assert "KC-01" in found
    assert "BK-02" in found


def test_they_judge_the_site_that_they_were_made_for(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    assert all(check.judge(site).outcome is not Outcome.FAILED for check in lint_checks(site, ("KC",)))
    name = "auth/admin.kubeconfig"
    site.assets = {**site.assets, name: Asset(name, b"{}", 0o600)}
    outcomes = {check.id: check.judge(site).outcome for check in lint_checks(site, ("KC",))}
    assert outcomes["KC-01"] is Outcome.FAILED


@pytest.mark.real("git")
def test_the_first_stage_looks_whether_git_would_take_a_secret(tmp_path: Path) -> None:
    site = make_site(tmp_path)

    def judged() -> Verdict:
        (check,) = [one for one in STAGE.checks(site) if one.id == "CFG-07"]
        return check.judge(site)

    assert judged().outcome is Outcome.PASSED
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    verdict = judged()
    assert verdict.outcome is Outcome.FAILED
    assert ".key" in verdict.evidence or "kubeconfig" in verdict.evidence
    (tmp_path / ".gitignore").write_text("*\n")
    assert judged().outcome is Outcome.PASSED


def test_every_rule_is_asked_by_a_stage(tmp_path: Path) -> None:
    asked: set[str] = set()
    for profile in ("kubernetes", "openshift"):
        site = make_site(tmp_path / profile, profile)
        for stage in catalogue.stages()[:8]:
            asked |= {check.id for check in stage.checks(site)}
    assert {rule.id for rule in RULES} - asked == set()


def test_it_says_what_comes_from_what_and_who_writes_it(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    told = lines(site)
    assert "kubeconfigs (stage 06) from the config and pki" in told
    assert any(line.startswith("stage 08 writes ignition (3)") for line in told)
    assert not any(line.endswith("writes ") for line in told)
    reporter = site.reporter
    assert isinstance(reporter, Lines)
    UNDERSTAND.steps(site)[0].act()
    assert reporter.lines == [f"saw {line}" for line in told]


def test_a_file_that_nobody_or_everybody_writes_is_seen(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    (check,) = UNDERSTAND.checks(site)
    assert check.judge(site).outcome is Outcome.PASSED
    files = dict(site.files)
    site.files = {**files, 8: files[8][1:], 9: files[5][:1]}
    verdict = check.judge(site)
    assert verdict.outcome is Outcome.FAILED
    assert verdict.evidence == f"no stage writes {files[8][0]}; two stages write {files[5][0]}"


def test_it_writes_pods_and_objects_and_removes_those_of_a_node_that_is_gone(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    _act(MANIFESTS.steps(site))
    stale = tmp_path / "artifacts" / "static-pods" / "worker-9" / "kube-proxy.yaml"
    stale.parent.mkdir()
    stale.write_bytes(b"x")
    steps = MANIFESTS.steps(site)
    assert steps[-1].command == "rm artifacts/static-pods/worker-9/kube-proxy.yaml"
    steps[-1].act()
    assert not stale.exists()
    assert (tmp_path / "artifacts" / "static-pods" / "bootstrap").is_dir()
