"""Causes in order of likelihood: every known fault is found as itself, and a good bundle has none."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.log_bundles import (
    AGENT_LOG,
    APISERVER_LOG,
    BEFORE,
    BEGIN,
    EGRESS_ARGUMENT,
    JOURNAL,
    SERVER_LOG,
    STAGES,
    WITHOUT_TUNNEL,
    BundleBuilder,
    Record,
    good_record,
    klog,
)

from umbilical.bootstrap.analyze import cause_checks
from umbilical.bootstrap.analyze.cause_checks import BundleCheck
from umbilical.bootstrap.analyze.diagnosis import CAUSES, diagnose
from umbilical.bootstrap.analyze.facts import BundleFacts, gather
from umbilical.bootstrap.analyze.log_bundle import open_bundle
from umbilical.bootstrap.analyze.signatures import FileKind
from umbilical.checks.check import Finding, Outcome, Verdict


def findings_of(builder: BundleBuilder, folder: Path) -> list[Finding]:
    return diagnose(gather(open_bundle(builder.archive(folder))))


def told(findings: list[Finding], outcome: Outcome) -> list[str]:
    return [finding.id for finding in findings if finding.outcome is outcome]


def fails_in(stage: str) -> BundleBuilder:
    script = Record().start().done(*STAGES[: STAGES.index(stage)]).fails(stage).start().fails(stage)
    return BundleBuilder(script)


def hangs_in(stage: str) -> BundleBuilder:
    return BundleBuilder(Record().start().done(*STAGES[: STAGES.index(stage)]).enters(stage))


def whole(record: Record) -> BundleBuilder:
    """A bundle with every file that a check could want, and nothing wrong in it."""
    builder = BundleBuilder(record).agents("10.0.0.9").certificates("10.0.0.9").event("Created pod")
    for path in (JOURNAL, SERVER_LOG, APISERVER_LOG, AGENT_LOG, "bootstrap/journals/kubelet.log"):
        builder.log(path, *klog("all is well"))
    builder.log("bootstrap/network/ip-route.txt", "default via 10.0.0.1").apiserver_config(*EGRESS_ARGUMENT)
    return builder.resource("resources/namespaces.json", {"metadata": {"name": "default"}})


def test_a_good_and_whole_bundle_passes_every_check(tmp_path: Path) -> None:
    findings = findings_of(whole(good_record()), tmp_path)
    assert told(findings, Outcome.PASSED) == [cause.id for cause in CAUSES]


ONCE = '"cannot connect once" err="rpc error: %s"'
HOOK = 'failed calling webhook "v.example.io": failed to call webhook: Post "https://%s": %s'


CERTS, SERVER = "konnectivity-certs", "konnectivity-server-bootstrap"
FORBIDDEN = 'pods "konnectivity-agent-" is forbidden: unable to validate against any security context constraint'
SOCKET = "/etc/kubernetes/config/konnectivity-server.socket"


ROUTES = "bootstrap/network/ip-route.txt"
NO_ROUTE = "dial tcp 10.128.2.5:8443: connect: no route to host"
NODE_REFUSED = "dial tcp 10.0.0.7:9443: connect: connection refused"


def unequipped() -> BundleBuilder:
    """A bundle of an installation without a tunnel, which hangs in cb-bootstrap."""
    stages = WITHOUT_TUNNEL[: WITHOUT_TUNNEL.index("cb-bootstrap")]
    return BundleBuilder(Record().start().done(*stages).enters("cb-bootstrap"))


def failing(stage: str, line: str, path: str = JOURNAL) -> BundleBuilder:
    return fails_in(stage).log(path, line)


def hanging(path: str, line: str) -> BundleBuilder:
    return hangs_in("cb-bootstrap").log(path, *klog(line))


@pytest.mark.parametrize(
    ("identifier", "builder"),
    [
        ("A02", BundleBuilder(good_record()).record("release-image", Record().start().fails("pull"))),
        ("A03", failing(CERTS, "UMB112 could not find the bootstrap node IP")),
        ("A03", failing(CERTS, "10.0.0.0/24 dev ens3", "bootstrap/network/ip-route.txt")),
        ("A04", failing(CERTS, "section=default, name=subjectAltName, value=IP:null")),
        ("A04", hangs_in("cb-bootstrap").agents("null")),
        ("A04", hanging(AGENT_LOG, ONCE % "dial tcp :8091: connect: connection refused")),
        ("A04", hanging(AGENT_LOG, ONCE % "dial tcp: lookup api-int.x.io on 10.0.0.2:53: no such host")),
        ("A04", hanging(AGENT_LOG, "UMB314 cannot connect to server=:8091: TCP: lookup : Name or service not known")),
        ("A05", failing(SERVER, "error: Unknown name requested, could not find apiserver-network-proxy in X")),
        ("A05", hanging("bootstrap/journals/kubelet.log", f'ErrImagePull pod="kube-system/{SERVER}"')),
        ("A06", failing(SERVER, "/usr/local/bin/konnectivity.sh: line 30: envsubst: command not found")),
        ("A07", failing(CERTS, "attempt to record the start of a stage without ending the previous one")),
        ("A08", hanging(SERVER_LOG, "error: failed to validate server options with server port should be set to 0")),
        ("A09", hanging(APISERVER_LOG, '"command failed" err="failed to read egress selector config: unable to read"')),
        ("A10", hangs_in("cb-bootstrap").event(FORBIDDEN)),
        ("A11", hanging(AGENT_LOG, ONCE % "dial tcp 10.0.0.9:8091: i/o timeout")),
        ("A12", hanging(AGENT_LOG, ONCE % "dial tcp 10.0.0.9:8091: connect: connection refused")),
        ("A13", hanging(AGENT_LOG, ONCE % "x509: certificate is valid for 10.0.0.8, not 10.0.0.9")),
        ("A13", hangs_in("cb-bootstrap").agents("10.0.0.9").certificates("10.0.0.8")),
        ("A14", hanging(AGENT_LOG, ONCE % "x509: certificate has expired or is not yet valid")),
        ("A15", hanging(AGENT_LOG, ONCE % "x509: certificate signed by unknown authority")),
        ("A16", hanging(APISERVER_LOG, f"dial unix {SOCKET}: connect: no such file or directory")),
        ("A17", hanging(SERVER_LOG, '"Failed to get a backend" dialID=1')),
        ("A17", hanging(APISERVER_LOG, HOOK % ("a.b.svc:443/x", "No agent available"))),
        ("A18", hanging(APISERVER_LOG, HOOK % ("hook.example.com/x", "i/o timeout"))),
        ("A19", hanging(APISERVER_LOG, HOOK % ("a.b.svc:443/x", 'no endpoints available for service "a"'))),
        ("A19", hanging(APISERVER_LOG, HOOK % ("a.b.svc:443/x", NODE_REFUSED)).log(ROUTES, "10.0.0.0/16 dev ens3")),
        ("A20", hangs_in("konnectivity-cleanup")),
        ("A21", unequipped().log(APISERVER_LOG, *klog(HOOK % ("a.b.svc:443/x", NO_ROUTE)))),
        ("A22", hangs_in("cb-bootstrap").apiserver_config("egressSelectorConfiguration:")),
        ("A23", hanging(AGENT_LOG, "Error: failed to run proxy connection with failed to read CA cert : read .: is a")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_known_cause_is_found_as_itself(tmp_path: Path, identifier: str, builder: BundleBuilder) -> None:
    failures = set(told(findings_of(builder, tmp_path), Outcome.FAILED))
    assert failures - {"A01"} == {identifier}


def test_every_cause_has_a_bundle_that_shows_it() -> None:
    marks = test_a_known_cause_is_found_as_itself.pytestmark  # type: ignore[attr-defined]
    shown = {arguments[0] for arguments in marks[0].args[1]}
    assert shown == {cause.id for cause in CAUSES} - {"A01"}


def test_what_explains_the_failing_stage_comes_before_what_is_likelier_elsewhere(tmp_path: Path) -> None:
    lines = ["x: line 3: envsubst: command not found", "UMB112 could not find"]
    builder = fails_in("konnectivity-server-bootstrap").log(JOURNAL, *lines)
    assert told(findings_of(builder, tmp_path), Outcome.FAILED) == ["A01", "A06", "A03"]


def test_what_any_good_run_shows_for_a_while_is_a_warning_after_a_good_end(tmp_path: Path) -> None:
    builder = whole(good_record()).log(AGENT_LOG, ONCE % "connect: connection refused")
    builder.log(SERVER_LOG, *klog('"Failed to get a backend" dialID=1'))
    findings = findings_of(builder, tmp_path)
    assert told(findings, Outcome.FAILED) == []
    assert told(findings, Outcome.WARNED) == ["A12", "A17"]


def test_what_was_never_tried_is_not_called_well_and_what_cannot_be_told_is_skipped(tmp_path: Path) -> None:
    findings = findings_of(whole(Record().start().done(*BEFORE[:-1]).fails("etcd-bootstrap")), tmp_path)
    assert told(findings, Outcome.PASSED) == ["A02"]
    reason = {finding.id: finding.evidence for finding in findings}["A20"]
    assert reason == "bootkube has not reached konnectivity-cleanup"
    findings = findings_of(BundleBuilder(), tmp_path)
    assert len(told(findings, Outcome.SKIPPED)) == len(CAUSES)
    assert all(finding.evidence for finding in findings)


def test_every_check_has_its_own_words_and_its_fix_names_commands_that_exist() -> None:
    checks = list(CAUSES)
    assert [check.id for check in checks] == [f"A{number:02}" for number in range(1, len(checks) + 1)]
    for texts in ([check.title for check in checks], [check.why for check in checks]):
        assert len(set(texts)) == len(texts)
    assert all(check.fix for check in checks)
    from umbilical.cli.main import GROUPS

    named = {name for cause in CAUSES for name in re.findall(r"umbilical bootstrap ([a-z]+)", cause.fix)}
    assert named <= set(GROUPS["bootstrap"][1])


@given(
    st.lists(st.tuples(st.sampled_from(STAGES), st.sampled_from(["done", "fails", "stumbles", "enters"])), max_size=6)
)
def test_any_record_is_diagnosed(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str]]) -> None:
    script = Record().start()
    for stage, step in steps:
        getattr(script, step)(stage)
    findings = findings_of(BundleBuilder(script), tmp_path_factory.mktemp("any"))
    assert len(findings) == len(CAUSES)
    assert findings[0].id == "A01" or findings[0].outcome is not Outcome.SKIPPED


HANGS = Record().start().done(*STAGES[:7]).enters("cb-bootstrap")
FAILS = Record().start().done(*BEFORE).fails("konnectivity-certs", "openssl: bad ip\nBearer abc.def")


def judged(judge: BundleCheck, builder: BundleBuilder, folder: Path) -> Verdict:
    return judge(gather(open_bundle(builder.archive(folder))))


def test_known_lines_fail_a_check_and_missing_files_skip_it() -> None:
    judge = cause_checks.seen("no address", needs=(FileKind.JOURNAL, FileKind.RECORD))
    facts = BundleFacts("x")
    assert judge(facts) == Verdict(Outcome.SKIPPED, FileKind.JOURNAL.value)
    facts.kinds = {FileKind.RECORD}
    assert judge(facts).outcome is Outcome.PASSED


def test_the_place_of_a_failure_is_told_without_the_line_that_a_trap_counts(tmp_path: Path) -> None:
    for error_line, shown in (
        ("1 main /usr/local/bin/bootkube.sh", ", in /usr/local/bin/bootkube.sh"),
        ("1 umbilical_setup /usr/local/bin/x.sh", ", in umbilical_setup of /usr/local/bin/x.sh"),
        ("186 umbilical_cleanup /usr/local/bin/x.sh", ", line 186 of /usr/local/bin/x.sh (umbilical_cleanup)"),
        ("12 NULL", ", line 12 NULL"),
        ("", ", line unknown"),
    ):
        script = Record().start().fails("konnectivity-certs", line=error_line)
        evidence = judged(cause_checks.ended_well, BundleBuilder(script), tmp_path).evidence
        assert evidence.splitlines()[0].endswith(shown)


def test_a_quote_ends_with_the_reason_and_the_hint_names_causes_only_where_there_are_some(tmp_path: Path) -> None:
    reason = HOOK % (f"{'hook-' * 30}.{'openshift-' * 9}.svc:443/x", NO_ROUTE)
    script = Record().start().done(*BEFORE).fails("cb-bootstrap", f"Internal error occurred: {reason}")
    first, second = findings_of(BundleBuilder(script), tmp_path)[:2]
    assert NO_ROUTE in first.evidence
    assert (first.fix.startswith("see the causes below"), second.id) == (True, "A21")
    (first, *others) = findings_of(hangs_in("cb-bootstrap"), tmp_path)
    assert first.fix.startswith("no known cause is in this bundle")
    assert {finding.outcome for finding in others} <= {Outcome.PASSED, Outcome.SKIPPED}


ON = BundleBuilder
SKIPPED_STAGE = Record().start().stumbles("resolve-api-url").done(*STAGES).ends_well()
CLEANUP_GAVE_UP = Record().start().done(*STAGES[:-1]).stumbles("konnectivity-cleanup").ends_well()
NO_IMAGE = ON(good_record()).record("release-image", Record().start().fails("pull"))
OTHERS_PKI = "rendered-assets/openshift/tls/konnectivity"
OTHERS_NAMES = ON(HANGS).agents("10.0.0.9").certificates("192.168.1.4", folder=OTHERS_PKI)
MISFIT = "valid for 192.168.1.4; agents dial 10.0.0.9"
STAYS = {
    "metadata": {"name": "openshift-bootstrap-konnectivity", "deletionTimestamp": "2026-11-15T14:40:00Z"},
    "status": {
        "phase": "Terminating",
        "conditions": [{"type": "NamespaceDeletionContentFailure", "status": "True", "message": "webhook unreachable"}],
    },
}
NOT_GONE = ON(good_record()).resource("resources/namespaces.json", STAYS)


@pytest.mark.parametrize(
    ("judge", "builder", "outcome", "evidence"),
    [
        (cause_checks.ended_well, ON(FAILS), Outcome.FAILED, "line 231 of bootkube.sh (main)"),
        (cause_checks.ended_well, ON(FAILS), Outcome.FAILED, "openssl: bad ip"),
        (cause_checks.ended_well, ON(HANGS), Outcome.FAILED, "has not finished it"),
        (cause_checks.ended_well, ON(SKIPPED_STAGE), Outcome.WARNED, "resolve-api-url"),
        (cause_checks.others_ended_well, NO_IMAGE, Outcome.FAILED, "bootstrap/services/release-image.json"),
        # Routes matter where the stage that needs them failed.
        (cause_checks.address_found, ON(FAILS).log(ROUTES, "10.0.0.0/24 dev ens3"), Outcome.FAILED, ""),
        (cause_checks.address_found, ON(FAILS).log(ROUTES, "default via 10.0.0.1"), Outcome.PASSED, ""),
        (cause_checks.address_found, ON(good_record()).log(ROUTES, "10.0.0.0/24 dev ens3"), Outcome.PASSED, ""),
        (cause_checks.address_is_one, ON(HANGS).agents("null"), Outcome.FAILED, ""),
        (cause_checks.address_is_one, ON(HANGS).agents(""), Outcome.FAILED, ""),
        (cause_checks.address_is_one, ON(HANGS).agents("10.0.0.9"), Outcome.PASSED, ""),
        (cause_checks.address_is_one, ON(HANGS).agents("fd00::9"), Outcome.PASSED, ""),
        (cause_checks.names_fit, ON(HANGS).agents("10.0.0.9").certificates("192.168.1.4"), Outcome.FAILED, MISFIT),
        (cause_checks.names_fit, OTHERS_NAMES, Outcome.FAILED, MISFIT),
        (cause_checks.names_fit, ON(HANGS).agents("fd00::9").certificates("fd00:0::9"), Outcome.PASSED, ""),
        (cause_checks.not_expired, ON(HANGS).certificates("10.0.0.9", BEGIN - timedelta(hours=2)), Outcome.PASSED, ""),
        (cause_checks.not_expired, ON(HANGS).certificates("10.0.0.9", BEGIN - timedelta(days=2)), Outcome.FAILED, ""),
        (cause_checks.cleaned_up, ON(CLEANUP_GAVE_UP), Outcome.FAILED, ""),
        (cause_checks.cleaned_up, ON(good_record()), Outcome.PASSED, ""),
        (cause_checks.cleaned_up, NOT_GONE, Outcome.FAILED, "webhook unreachable"),
    ],
)
def test_a_check_judges_by_what_the_bundle_holds(
    tmp_path: Path, judge: BundleCheck, builder: BundleBuilder, outcome: Outcome, evidence: str
) -> None:
    verdict = judged(judge, builder.log(JOURNAL, "x"), tmp_path)
    assert verdict.outcome is outcome
    assert evidence in verdict.evidence
    assert "abc.def" not in verdict.evidence


def test_a_stage_that_was_never_begun_is_not_reached(tmp_path: Path) -> None:
    facts = gather(open_bundle(BundleBuilder(FAILS).archive(tmp_path)))
    assert cause_checks.not_reached(facts, ("cb-bootstrap",))
    assert not cause_checks.not_reached(facts, ("cb-bootstrap", "konnectivity-certs"))
    assert not cause_checks.not_reached(BundleFacts("no record"), ("cb-bootstrap",))
