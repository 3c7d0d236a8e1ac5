"""What the checks look at, one by one: when they fail, when they pass, and when they may not say."""

from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.log_bundles import (
    AGENT_LOG,
    BEFORE,
    BEGIN,
    JOURNAL,
    STAGES,
    BundleBuilder,
    Record,
    good_record,
)

from umbilical.bootstrap import bundle_judges
from umbilical.bootstrap.bundle_facts import BundleFacts, gather
from umbilical.bootstrap.bundle_judges import Judge
from umbilical.bootstrap.log_bundle import open_bundle
from umbilical.bootstrap.log_signatures import Kind
from umbilical.checks.check import Outcome, Verdict

HANGS = Record().start().done(*STAGES[:7]).enters("cb-bootstrap")
FAILS = Record().start().done(*BEFORE).fails("konnectivity-certs", "openssl: bad ip\nBearer abc.def")
ROUTES = "bootstrap/network/ip-route.txt"


def judged(judge: Judge, builder: BundleBuilder, folder: Path) -> Verdict:
    return judge(gather(open_bundle(builder.archive(folder))))


def test_known_lines_fail_a_check_and_missing_files_skip_it() -> None:
    judge = bundle_judges.seen("no address", needs=(Kind.JOURNAL, Kind.RECORD))
    facts = BundleFacts("x")
    assert judge(facts) == Verdict(Outcome.SKIPPED, Kind.JOURNAL.value)
    facts.kinds = {Kind.RECORD}
    assert judge(facts).outcome is Outcome.PASSED


def test_a_failure_is_shown_with_its_line_and_message(tmp_path: Path) -> None:
    verdict = judged(bundle_judges.ended_well, BundleBuilder(FAILS), tmp_path)
    assert verdict.outcome is Outcome.FAILED
    assert "line 231 of bootkube.sh (main)" in verdict.evidence
    assert "openssl: bad ip" in verdict.evidence
    assert "abc.def" not in verdict.evidence


@pytest.mark.parametrize(
    ("error_line", "shown"),
    [
        ("1 main /usr/local/bin/bootkube.sh", ", in /usr/local/bin/bootkube.sh"),
        ("1 umbilical_setup /usr/local/bin/x.sh", ", in umbilical_setup of /usr/local/bin/x.sh"),
        ("186 umbilical_cleanup /usr/local/bin/x.sh", ", line 186 of /usr/local/bin/x.sh (umbilical_cleanup)"),
        ("12 NULL", ", line 12 NULL"),
        ("", ", line unknown"),
    ],
)
def test_the_place_of_a_failure_is_told_without_the_line_that_a_trap_counts(
    error_line: str, shown: str, tmp_path: Path
) -> None:
    script = Record().start().fails("konnectivity-certs", line=error_line)
    evidence = judged(bundle_judges.ended_well, BundleBuilder(script), tmp_path).evidence
    assert evidence.splitlines()[0].endswith(shown)


def test_a_hang_is_shown_by_its_sentence(tmp_path: Path) -> None:
    assert "has not left it" in judged(bundle_judges.ended_well, BundleBuilder(HANGS), tmp_path).evidence


def test_a_stage_that_was_passed_over_is_a_warning(tmp_path: Path) -> None:
    script = Record().start().stumbles("resolve-api-url").done(*STAGES).ends_well()
    verdict = judged(bundle_judges.ended_well, BundleBuilder(script), tmp_path)
    assert verdict.outcome is Outcome.WARNED
    assert "resolve-api-url" in verdict.evidence


def test_another_service_that_fails_is_named(tmp_path: Path) -> None:
    builder = BundleBuilder(good_record()).record("release-image", Record().start().fails("pull"))
    verdict = judged(bundle_judges.others_ended_well, builder, tmp_path)
    assert verdict.outcome is Outcome.FAILED
    assert "bootstrap/services/release-image.json" in verdict.evidence


@pytest.mark.parametrize(
    ("routes", "outcome"),
    [
        ("10.0.0.0/24 dev ens3 scope link", Outcome.FAILED),
        ("default via 10.0.0.1 dev ens3", Outcome.PASSED),
    ],
)
def test_a_node_without_a_default_route_is_seen_by_its_routes(tmp_path: Path, routes: str, outcome: Outcome) -> None:
    builder = BundleBuilder(FAILS).log(ROUTES, routes).log(JOURNAL, "x")
    assert judged(bundle_judges.address_found, builder, tmp_path).outcome is outcome


def test_routes_do_not_matter_where_the_stage_went_well(tmp_path: Path) -> None:
    builder = BundleBuilder(good_record()).log(ROUTES, "10.0.0.0/24 dev ens3").log(JOURNAL, "x")
    assert judged(bundle_judges.address_found, builder, tmp_path).outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("host", "outcome"),
    [("null", Outcome.FAILED), ("", Outcome.FAILED), ("10.0.0.9", Outcome.PASSED), ("fd00::9", Outcome.PASSED)],
)
def test_what_agents_dial_must_be_an_address(tmp_path: Path, host: str, outcome: Outcome) -> None:
    builder = BundleBuilder(HANGS).agents(host).log(JOURNAL, "x")
    assert judged(bundle_judges.address_is_one, builder, tmp_path).outcome is outcome


@pytest.mark.parametrize("folder", ["umbilical/pki", "tls/konnectivity"])
def test_a_certificate_for_another_address_is_found_without_any_log(tmp_path: Path, folder: str) -> None:
    builder = BundleBuilder(HANGS).agents("10.0.0.9")
    builder.certificates("192.168.1.4", folder=f"rendered-assets/openshift/{folder}")
    verdict = judged(bundle_judges.names_fit, builder, tmp_path)
    assert verdict.outcome is Outcome.FAILED
    assert "valid for 192.168.1.4; agents dial 10.0.0.9" in verdict.evidence


def test_a_certificate_for_the_address_that_is_dialled_passes(tmp_path: Path) -> None:
    builder = BundleBuilder(HANGS).agents("fd00::9").certificates("fd00:0::9")
    assert judged(bundle_judges.names_fit, builder, tmp_path).outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("age", "outcome"), [(timedelta(hours=2), Outcome.PASSED), (timedelta(days=2), Outcome.FAILED)]
)
def test_certificates_are_compared_with_the_end_of_the_bundle(tmp_path: Path, age: timedelta, outcome: Outcome) -> None:
    builder = BundleBuilder(HANGS).certificates("10.0.0.9", BEGIN - age)
    assert judged(bundle_judges.not_expired, builder, tmp_path).outcome is outcome


def test_an_agent_that_meets_an_expired_certificate_says_it(tmp_path: Path) -> None:
    builder = BundleBuilder(HANGS).log(AGENT_LOG, "x509: certificate has expired or is not yet valid: current time")
    assert judged(bundle_judges.not_expired, builder, tmp_path).outcome is Outcome.FAILED


CLEANUP_HANGS = Record().start().done(*STAGES[:-1]).enters("konnectivity-cleanup")
CLEANUP_GAVE_UP = Record().start().done(*STAGES[:-1]).stumbles("konnectivity-cleanup").ends_well()


@pytest.mark.parametrize("script", [CLEANUP_HANGS, CLEANUP_GAVE_UP])
def test_a_cleanup_that_hangs_or_gave_up_is_found(tmp_path: Path, script: Record) -> None:
    assert judged(bundle_judges.cleaned_up, BundleBuilder(script), tmp_path).outcome is Outcome.FAILED


def test_a_namespace_that_stays_is_found_after_a_good_end(tmp_path: Path) -> None:
    conditions = [{"type": "NamespaceDeletionContentFailure", "status": "True", "message": "webhook unreachable"}]
    namespace = {
        "metadata": {"name": "openshift-bootstrap-konnectivity", "deletionTimestamp": "2026-11-15T14:40:00Z"},
        "status": {"phase": "Terminating", "conditions": conditions},
    }
    builder = BundleBuilder(good_record()).resource("resources/namespaces.json", namespace)
    verdict = judged(bundle_judges.cleaned_up, builder, tmp_path)
    assert verdict.outcome is Outcome.FAILED
    assert "webhook unreachable" in verdict.evidence
    assert judged(bundle_judges.cleaned_up, BundleBuilder(good_record()), tmp_path).outcome is Outcome.PASSED


def test_a_stage_that_was_never_begun_is_not_reached(tmp_path: Path) -> None:
    facts = gather(open_bundle(BundleBuilder(FAILS).archive(tmp_path)))
    assert bundle_judges.not_reached(facts, ("cb-bootstrap",))
    assert not bundle_judges.not_reached(facts, ("cb-bootstrap", "konnectivity-certs"))
    assert not bundle_judges.not_reached(BundleFacts("no record"), ("cb-bootstrap",))
