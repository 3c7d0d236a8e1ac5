"""The whole list: every id of the specification, words for each, and a clean bill for what is right."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.bootstrap_corpus import CORPUS, NATIVE_RELEASES, Case
from tests.support.verify_subjects import failures, findings, warnings

from umbilical.assets.bootkube.patch import patch
from umbilical.assets.bootkube.profile import Profile
from umbilical.assets.spec import Shape, for_shape
from umbilical.assets.verify.catalogue import CATALOGUE, FIRST_PLAN, GROUPS, verify
from umbilical.assets.verify.facts import BootstrapFacts
from umbilical.checks.check import Outcome
from umbilical.checks.report import group_of
from umbilical.ignition.document import Document

SPECIFIED = {"S": 9, "F": 9, "C": 11, "B": 11}


def test_every_assertion_of_the_specification_is_a_check() -> None:
    ids = [check.id for check in CATALOGUE]
    wanted = {f"{group}{number}" for group, last in SPECIFIED.items() for number in range(1, last + 1)}
    assert wanted <= set(ids)
    assert len(ids) == len(set(ids))
    assert {group_of(identifier) for identifier in ids} == set(GROUPS)


@pytest.mark.parametrize("check", CATALOGUE, ids=lambda check: check.id)
def test_every_check_says_what_holds_what_breaks_and_what_to_do(check: object) -> None:
    words = [getattr(check, name) for name in ("title", "why", "fix")]
    assert all(len(text) > 15 and not text.endswith(".") and not re.search(r"TODO|FIXME", text) for text in words)


def test_the_first_plans_checklist_maps_onto_checks_that_exist() -> None:
    ids = {check.id for check in CATALOGUE}
    assert list(FIRST_PLAN) == [1, 2, 3, 4, 5]
    assert all(set(checks) <= ids for _, checks in FIRST_PLAN.values())
    wanted = {1: {"C1", "C2"}, 2: {"C5", "C8"}, 3: {"C5"}, 4: {"C6", "C7"}, 5: {"B3"}}
    assert all(wanted[item] <= set(checks) for item, (_, checks) in FIRST_PLAN.items())


@pytest.mark.parametrize("case", CORPUS, ids=str)
def test_every_config_of_the_corpus_passes_as_it_is(case: Case) -> None:
    content = case.content()
    expected = Profile.NATIVE_OFF if case.native == "off" else Profile.NONE
    assert (failures(content, profile=expected), warnings(content)) == (set(), set())


@pytest.mark.parametrize("shape", [Shape.OPENSHIFT, Shape.SEED])
@pytest.mark.parametrize("case", CORPUS, ids=str)
def test_every_config_of_the_corpus_passes_once_patched(case: Case, shape: Shape) -> None:
    content = patch(Document(case.content()), for_shape(shape)).document.content
    found = findings(content, profile=Profile.PATCHED)
    assert {finding.id for finding in found.values() if finding.outcome in (Outcome.FAILED, Outcome.WARNED)} == set()
    skipped = {finding.id for finding in found.values() if finding.outcome is Outcome.SKIPPED}
    allowed = {"S10", *(["B11"] if case.native != "off" else []), *(["F4"] if shape is Shape.SEED else [])}
    assert skipped == allowed | ({"S6"} if case.platform == "azure" else set())


@pytest.mark.parametrize("ipv6", [False, True])
@pytest.mark.parametrize("release", NATIVE_RELEASES)
def test_an_installers_own_tunnel_passes(release: str, ipv6: bool) -> None:
    content = Case(release, native="on", ipv6=ipv6).content()
    assert (failures(content, profile=Profile.NATIVE_ON), warnings(content)) == (set(), set())


def test_what_is_refused_by_a_patch_is_found_here_too() -> None:
    assert failures(Case(pointer=True).content()) == {"S2"}
    assert failures(Case(in_place=True).content()) == {"S9"}


def test_without_a_tunnel_all_about_it_is_skipped_with_the_reason() -> None:
    found = findings(Case().content())
    about = [finding for name, finding in found.items() if re.fullmatch(r"F.|C.+|B[1-79]|X[34]", name)]
    assert {finding.outcome for finding in about} == {Outcome.SKIPPED}
    assert {finding.evidence for finding in about} == {"there is no tunnel in it (profile none)"}


@given(st.binary(max_size=200))
def test_any_bytes_give_findings(content: bytes) -> None:
    assert len(verify(BootstrapFacts(content, now=0.0))) == len(CATALOGUE)
