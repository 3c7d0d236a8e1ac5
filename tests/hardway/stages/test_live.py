"""Live stages: what makes them stale, and machines that are installed once and known by their config and name."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.live_site import live_site, machines_of, switch_on

from umbilical.assets.hardway.topic import TopicKind
from umbilical.assets.tree import Asset
from umbilical.checks.check import Outcome
from umbilical.hardway.errors import Unsafe
from umbilical.hardway.looking import Sight
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Superseded, Undo
from umbilical.hardway.stages.catalogue import stages
from umbilical.hardway.stages.live import LiveStage, PassingStage, install_step, installed_sight, started_key
from umbilical.pki.authority import Authority
from umbilical.pki.profiles import KeyType

LIVE = [stage for stage in stages() if isinstance(stage, LiveStage)]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return live_site(tmp_path)


def test_stages_nine_to_seventeen_are_live_and_explain_themselves() -> None:
    assert [stage.number for stage in LIVE] == list(range(9, 18))
    for stage in LIVE:
        assert (stage.topic.kind, stage.topic.name) == (TopicKind.STAGE, f"{stage.number:02}")
        assert all((stage.topic.what, stage.topic.readers, stage.topic.without, stage.topic.by_hand))


def test_bootstraps_stages_end_with_the_pivot() -> None:
    assert [stage.number for stage in LIVE if isinstance(stage, Superseded)] == [9, 10]
    assert {stage.ends_with for stage in LIVE if isinstance(stage, PassingStage)} == {13}


@pytest.mark.parametrize("stage", LIVE, ids=lambda stage: stage.name)
def test_every_step_has_a_title_and_a_line_to_type_and_every_check_a_reason(stage: LiveStage, site: Site) -> None:
    steps = stage.steps(site)
    assert len({step.title for step in steps}) == len(steps)
    assert all(step.title and step.command for step in steps)
    checks = stage.checks(site)
    assert checks
    assert len({check.id for check in checks}) == len(checks)
    assert all(check.title and check.why and check.fix for check in checks)


def test_other_content_of_what_it_uses_makes_it_stale(site: Site) -> None:
    def nothing(site: Site) -> list[Sight]:
        return []

    stage = LiveStage(
        9, "x", "y", (), LIVE[0].topic, lambda site: [], nothing, ("manifests",), lambda site: site.cluster.masters
    )
    before = stage.inputs(site)
    assert before["manifests"] == "one"
    site.assets = {**site.assets, "ignition/master-0.ign": Asset("ignition/master-0.ign", b"{}", 0o600)}
    assert stage.inputs(site)["master-0"] != before["master-0"]
    site.hashes = {"manifests": "two"}
    assert stage.inputs(site)["manifests"] == "two"


def test_a_machine_is_installed_once_and_its_moment_is_noted(site: Site) -> None:
    node = site.cluster.masters[0]
    step = install_step(site, node)
    assert step.undo == Undo("remove-machine", {"node": "master-0"})
    step.act()
    noted = site.notes[started_key(node)]
    assert datetime.fromisoformat(noted).tzinfo == UTC
    step.act()
    assert machines_of(site).calls == ["install master-0"]
    assert site.notes[started_key(node)] == noted


def test_a_machine_from_another_config_is_installed_anew(site: Site) -> None:
    machines_of(site).installed["master-0"] = b"another"
    install_step(site, site.cluster.masters[0]).act()
    assert machines_of(site).calls == ["install master-0"]


def test_it_runs_from_its_config_and_bears_its_name(site: Site) -> None:
    node = site.cluster.masters[0]
    sight = installed_sight(node)
    assert sight.check.judge(site).evidence == "it was not installed from this config"
    switch_on(site)
    machines_of(site).files["master-0", "/etc/hostname"] = b"localhost\n"
    assert sight.check.judge(site).evidence == f"it calls itself 'localhost', not {node.name}"
    switch_on(site)
    assert sight.check.judge(site).outcome is Outcome.PASSED


def test_nothing_is_booted_with_a_certificate_that_ends_within_two_hours(site: Site) -> None:
    pair = Authority.create("soon", site.now(), timedelta(minutes=90), KeyType.ECDSA_P256).pair
    path = "tls/kubelet-signer.crt"
    site.assets = {**site.assets, path: Asset(path, pair.certificate, 0o644)}
    with pytest.raises(Unsafe) as refused:
        install_step(site, site.cluster.bootstrap).act()
    assert refused.value.code == "UMB762"
    assert refused.value.why.startswith(f"{path} ends at ")
    assert machines_of(site).calls == []
    assert dict(site.notes) == {}
