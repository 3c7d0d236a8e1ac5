"""Every certificate row, flag, file kind and rule has words, and each is found by the names that users have for it."""

import pytest
from tests.support.hardway_everything import everything, usual
from tests.support.hardway_lint import Subject

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.explain import library, lookup
from umbilical.assets.hardway.explain.entry import Entry, EntryKind
from umbilical.assets.hardway.explain.rule_lines import BY_HAND
from umbilical.assets.hardway.lint.catalogue import RULES
from umbilical.pki.hardway_table import TABLE

ENTRIES = library.entries()
FILES = (EntryKind.FILE, EntryKind.CERTIFICATE)
# What the made-up MachineConfig brings is not ours to explain.
FROM_BASE = frozenset({"00-default", "configure-ovs.sh", "criometricsproxy.yaml", "ovs-configuration.service"})


def subjects() -> list[Subject]:
    return [made(profile) for made in (everything, usual) for profile in Profile]


def kinds(asked: str) -> set[EntryKind]:
    return {entry.kind for entry in lookup.find(ENTRIES, asked)}


@pytest.mark.parametrize("profile", Profile)
def test_every_artifact_is_explained_by_its_path(profile: Profile) -> None:
    paths = {path for made in (everything, usual) for path in made(profile).assets}
    assert len(paths) > 100
    assert [path for path in sorted(paths) if not kinds(f"artifacts/{path}") & set(FILES)] == []


@pytest.mark.parametrize("profile", Profile)
def test_every_file_and_unit_of_a_node_is_explained(profile: Profile) -> None:
    subject = everything(profile)
    facts = subject.facts()
    configs = [facts.ignition(node) for node in subject.cluster.nodes]
    found = {file.path for config in configs for file in config.files}
    found |= {f"/etc/systemd/system/{unit.name}" for config in configs for unit in config.units}
    wanted = [path for path in sorted(found) if path.rpartition("/")[2] not in FROM_BASE]
    assert len(wanted) > 20
    assert [path for path in wanted if not kinds(path) & set(FILES)] == []


def test_every_row_of_the_certificate_table_is_explained() -> None:
    rows = {row.id for row in TABLE}
    assert [row for row in sorted(rows) if EntryKind.CERTIFICATE not in kinds(row.replace("{node}", "master-0"))] == []


@pytest.mark.parametrize("profile", Profile)
def test_every_flag_of_every_static_pod_is_explained_for_its_program(profile: Profile) -> None:
    subject = everything(profile)
    words = {
        word.partition("=")[0]
        for asset in subject.assets.values()
        if asset.path.split("/")[0] in ("static-pods", "late-static-pods") and asset.path.endswith(".yaml")
        for document in subject.facts().documents(asset.path)
        for container in document.get("spec", {}).get("containers", [])
        for word in [*container.get("command", []), *container.get("args", [])]
        if word.startswith("--")
    }
    assert len(words) > 50
    assert [word for word in sorted(words) if EntryKind.FLAG not in kinds(word)] == []


def test_every_rule_is_explained_with_a_line_to_type() -> None:
    assert [rule.id for rule in RULES if kinds(rule.id) != {EntryKind.RULE}] == []
    assert {rule.id for rule in RULES} == set(BY_HAND)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry.kind.value} {entry.name}")
def test_an_explanation_says_what_it_is_who_reads_it_what_breaks_and_how_to_see_it(entry: Entry) -> None:
    assert entry.what
    assert entry.readers
    assert entry.without
    assert entry.by_hand
    assert entry.installer or entry.kind is EntryKind.RULE
    assert "\n" not in entry.by_hand
