"""The whole list, how one rule judges, and the facts that all of them read."""

import re
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.bootstrap_corpus import CORPUS, NATIVE_RELEASES, Case, bootstrap_config
from tests.support.verify_subjects import failures, findings, subject

from umbilical.bootstrap.names import NATIVE, OWN
from umbilical.bootstrap.patch.config_facts import TunnelState
from umbilical.bootstrap.patch.patch import patch
from umbilical.bootstrap.spec import Mode, Shape, for_shape
from umbilical.bootstrap.verify.catalogue import CATALOGUE, FIRST_PLAN, GROUPS, verify
from umbilical.bootstrap.verify.facts import BootstrapFacts, bootkube, files, rule, tunnel
from umbilical.checks.check import MAX_FAULTS, Doubt, Outcome, Verdict, failed, passed, skipped, warned
from umbilical.ignition.document import IgnitionDocument

NUMBERS = {"S": 11, "F": 9, "C": 11, "B": 11, "X": 4}
PATCHED = BootstrapFacts(subject("patched").content)


def test_the_checks_are_numbered_by_group_and_say_what_holds_what_breaks_and_what_to_do() -> None:
    assert [check.id for check in CATALOGUE] == [
        f"{name}{i}" for name, last in NUMBERS.items() for i in range(1, last + 1)
    ]
    assert set(GROUPS) == set(NUMBERS)
    words = [(check.id, text) for check in CATALOGUE for text in (check.title, check.why, check.fix)]
    assert [at for at, text in words if len(text) < 16 or text.endswith(".") or re.search(r"TODO|FIXME", text)] == []


def test_the_first_plans_checklist_maps_onto_checks_that_exist() -> None:
    wanted = {1: {"C1", "C2"}, 2: {"C5", "C8"}, 3: {"C5"}, 4: {"C6", "C7"}, 5: {"B3"}}
    assert list(FIRST_PLAN) == list(wanted)
    ids = {check.id for check in CATALOGUE}
    covered = {item: planned.checks for item, planned in FIRST_PLAN.items()}
    assert all(wanted[item] <= set(checks) <= ids for item, checks in covered.items())


def test_every_config_of_the_corpus_passes_as_it_is() -> None:
    for case in CORPUS:
        expected = TunnelState.NATIVE_OFF if case.native == "off" else TunnelState.NONE
        found = findings(case.content(), expected_state=expected).values()
        assert [finding for finding in found if finding.outcome in (Outcome.FAILED, Outcome.WARNED)] == [], case


@pytest.mark.parametrize("shape", [Shape.OPENSHIFT, Shape.SEED])
def test_every_config_of_the_corpus_passes_once_patched(shape: Shape) -> None:
    for case in CORPUS:
        content = patch(IgnitionDocument(case.content()), for_shape(shape)).document.content
        found = findings(content, expected_state=TunnelState.PATCHED).values()
        assert [finding for finding in found if finding.outcome in (Outcome.FAILED, Outcome.WARNED)] == [], case
        skipped = {finding.id for finding in found if finding.outcome is Outcome.SKIPPED}
        allowed = {"S10", *(["B11"] if case.native != "off" else []), *(["F4"] if shape is Shape.SEED else [])}
        assert skipped == allowed | ({"S6"} if case.platform == "azure" else set()), case


def test_an_installers_own_tunnel_passes() -> None:
    for case in [Case(release, native="on", ipv6=ipv6) for release in NATIVE_RELEASES for ipv6 in (False, True)]:
        found = findings(case.content(), expected_state=TunnelState.NATIVE_ON).values()
        assert [finding for finding in found if finding.outcome in (Outcome.FAILED, Outcome.WARNED)] == [], case


def test_what_is_refused_by_a_patch_is_found_here_too() -> None:
    assert failures(Case(pointer=True).content()) == {"S2"}
    assert failures(Case(in_place=True).content()) == {"S9"}


def test_what_needs_a_tunnel_or_a_file_that_is_missing_is_skipped_with_the_reason() -> None:
    found = findings(Case().content())
    about = [finding for name, finding in found.items() if re.fullmatch(r"F.|C.+|B[1-79]|X[34]", name)]
    assert {finding.outcome for finding in about} == {Outcome.SKIPPED}
    assert {finding.evidence for finding in about} == {"the file has no tunnel (tunnel state none)"}
    found = findings(subject("patched").without("egress").content, "C1", "C3", "C4")
    assert {finding.outcome for finding in found.values()} == {Outcome.SKIPPED}
    assert OWN.egress in found["C1"].evidence


def test_a_manifest_that_is_no_yaml_fails() -> None:
    for role in ("egress", "override", "server_pod", "agent_secret", "agent_daemon_set", "namespace"):
        assert failures(subject("patched").with_text(role, "a: [").content)


@given(st.binary(max_size=200))
def test_any_bytes_give_findings(content: bytes) -> None:
    assert len(verify(BootstrapFacts(content, now=0.0))) == len(CATALOGUE)


def verdict(faults: Iterable[str]) -> Verdict:
    return rule("A1", "", "", "", lambda facts: faults).judge(PATCHED)


def test_a_rule_judges_by_the_faults_that_its_search_finds() -> None:
    assert verdict([]) == passed()
    assert verdict(["one", "two"]) == failed("one; two")
    assert verdict([Doubt("hm")]) == warned("hm")
    assert verdict([Doubt("hm"), "bad"]) == failed("bad")
    assert len(verdict(str(number) for number in range(1000)).evidence.split("; ")) == MAX_FAULTS


def test_a_need_that_is_not_met_skips_and_ends_the_search_for_others() -> None:
    def never(facts: BootstrapFacts) -> str | None:
        raise AssertionError

    assert rule("A1", "", "", "", lambda facts: [], lambda facts: "no", never).judge(PATCHED) == skipped("no")
    unreadable = BootstrapFacts(b"")
    assert rule("A1", "", "", "", lambda facts: ["x"]).judge(unreadable).outcome is Outcome.SKIPPED


def test_a_tunnel_its_files_and_bootkube_are_needed() -> None:
    patched = subject("patched")
    assert (tunnel(PATCHED), files("egress", "library")(PATCHED), bootkube(PATCHED)) == (None, None, None)
    assert "tunnel state none" in str(tunnel(BootstrapFacts(bootstrap_config("4.18"))))
    assert "native-off" in str(tunnel(BootstrapFacts(bootstrap_config("5.1", native="off"))))
    missing = BootstrapFacts(patched.without("egress").content)
    assert "egress-selector-config.yaml" in str(files("library", "egress")(missing))
    assert "S7" in str(bootkube(BootstrapFacts(patched.without("bootkube").content)))


def test_profile_shape_and_mode_are_found_unless_given() -> None:
    for name, state, names, shape, mode in (
        ("native", TunnelState.NATIVE_ON, NATIVE, Shape.OPENSHIFT, Mode.GRPC),
        ("patched", TunnelState.PATCHED, OWN, Shape.OPENSHIFT, Mode.GRPC),
        ("seed", TunnelState.PATCHED, OWN, Shape.SEED, Mode.HTTP_CONNECT),
        ("beside-native", TunnelState.PATCHED, OWN, Shape.OPENSHIFT, Mode.GRPC),
    ):
        facts = BootstrapFacts(subject(name).content)
        assert facts.has_tunnel
        assert (facts.found_state, facts.names, facts.found_shape, facts.found_mode) == (state, names, shape, mode)
    given = BootstrapFacts(subject("patched").content, platform="gcp", shape=Shape.SEED, mode=Mode.HTTP_CONNECT)
    assert (given.found_platform, given.found_shape, given.found_mode) == ("gcp", Shape.SEED, Mode.HTTP_CONNECT)


def test_what_is_no_config_has_no_facts_but_why() -> None:
    facts = BootstrapFacts(b"{")
    assert facts.config is None
    assert facts.config_fault
    assert (facts.found_state, facts.has_tunnel, facts.bootkube, facts.contents) == (TunnelState.NONE, False, None, {})
    assert facts.found_platform is None


def test_a_file_that_is_there_twice_is_none_that_can_be_read() -> None:
    patched = subject("patched")
    assert PATCHED.text(OWN.egress) == patched.text("egress")
    twice = BootstrapFacts(
        patched.whole(lambda value: value["storage"]["files"].append(value["storage"]["files"][-2])).content
    )
    assert twice.config is not None
    assert twice.text(twice.config.files[-1].path) is None


def test_one_changed_sign_does_not_change_the_shape() -> None:
    changed = subject("seed").edited(
        "agent_daemon_set", lambda value: value["spec"]["template"]["spec"].update(hostNetwork=False)
    )
    assert BootstrapFacts(changed.content).found_shape is Shape.SEED
