"""Stage 17: the cluster is exactly the config's, its parts agree, data outlives an API server, and nothing is left."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.api_stock import Stock, config_map, finalize, namespace, node, pod
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.hardway import NOW
from tests.support.hardway_everything import usual
from tests.support.live_site import OPENSHIFT, live_site, machines_of, naps_of, switch_on, told_by
from tests.support.made_up_trial import NAMESPACE, WEBHOOK, MadeUpTrial
from tests.support.pivot_scene import joined

from umbilical.checks.check import Outcome
from umbilical.cluster import objects
from umbilical.hardway import kube, watching
from umbilical.hardway.errors import HardwayError, StageTimeout
from umbilical.hardway.etcd import client_url
from umbilical.hardway.machines import Done, Power
from umbilical.hardway.site import Site
from umbilical.hardway.stage import NEVER, Step
from umbilical.hardway.stages import s17_verification
from umbilical.hardway.stages.s17_verification import STAGE, etcd_sight, nodes_sight, pods_sight

pytestmark = pytest.mark.real(*PROGRAMS)


def step(site: Site, words: str) -> Step:
    (found,) = [one for one in STAGE.steps(site) if words in one.title]
    return found


def titles(site: Site) -> list[str]:
    return [one.title for one in STAGE.steps(site)]


def test_what_is_tried_depends_on_what_there_is(tmp_path: Path, trial: MadeUpTrial) -> None:
    site = live_site(tmp_path)
    ending = ["say how long certificates live", "remove what the trial made", "delete the bootstrap machine"]
    assert titles(site) == ending
    site.trial = trial
    tried = ["deploy a workload", "see it run", "reach it by its Service and its name"]
    tried += ["read its logs", "forward a port of it"]
    assert titles(site) == [*tried, "have an object judged directly", *ending]
    bigger = live_site(tmp_path, masters=3)
    bigger.trial, bigger.has_tunnel = trial, False
    assert titles(bigger) == [*tried, "lose an API server", *ending]


def test_nodes_are_exactly_those_of_the_config(site: Site, shelf: Stock) -> None:
    master, worker = site.cluster.members
    shelf.put(node(master.name, str(master.address)), node("somebody.example.com", "192.0.2.1"))
    assert nodes_sight().check.judge(site).evidence == (
        f"unexpected: ['somebody.example.com'], missing: ['{worker.name}']"
    )
    shelf.take("Node", "somebody.example.com")
    shelf.put(node(worker.name, str(worker.address)))
    assert nodes_sight().check.judge(site).evidence == "exactly 2"


def test_pods_of_the_system_run_and_none_at_all_is_not_enough(site: Site, shelf: Stock) -> None:
    assert pods_sight().check.judge(site).evidence == "there are no pods at all"
    broken = pod("crashing", "kube-system", is_ready=False)
    shelf.put(pod("fine", "kube-system"), broken)
    assert pods_sight().check.judge(site).evidence == "crashing Pending"
    broken["status"]["phase"] = "Succeeded"
    shelf.put(broken)
    assert pods_sight().check.judge(site).evidence == "2 pods"


def test_members_of_etcd_are_healthy_and_in_one_term(tmp_path: Path) -> None:
    site = live_site(tmp_path, masters=3)
    etcd = joined(site)
    machines_of(site).responders.append(etcd)
    assert etcd_sight().check.judge(site).evidence == "3 members in term 2"
    last = client_url(site.cluster.masters[2])
    etcd.terms[last] = 3
    assert etcd_sight().check.judge(site).evidence == "members are in different terms: [2, 3]"
    etcd.unhealthy[last] = "context deadline exceeded"
    assert etcd_sight().check.judge(site).evidence == "context deadline exceeded"


@pytest.fixture
def losing(tmp_path: Path, plane: ControlPlane, trial: MadeUpTrial, shelf: Stock) -> Iterator[Site]:
    site = live_site(tmp_path, plane, masters=2)
    site.trial = trial
    shelf.put(namespace(NAMESPACE))
    yield site
    shelf.take("ConfigMap", "kept", NAMESPACE)


def test_data_outlives_an_api_server(losing: Site) -> None:
    machines_of(losing).responders.append(lambda node, command, stdin: Done(0, b"", b""))
    lose = step(losing, "lose an API server")
    for _ in range(2):
        lose.act()
    calls = machines_of(losing).calls
    assert len(calls) == 2
    assert all(call.startswith("run master-0 sh -c") and call.endswith("sh 6443") for call in calls)
    assert any("data outlives an API server" in line for line in told_by(losing))


def test_an_api_server_that_does_not_run_cannot_be_lost(losing: Site) -> None:
    with pytest.raises(HardwayError) as raised:
        step(losing, "lose an API server").act()
    assert raised.value.code == "UMB749"


def test_data_that_is_gone_is_told(losing: Site, shelf: Stock, monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(node_id: str, command: tuple[str, ...], stdin: bytes) -> Done:
        shelf.take("ConfigMap", "kept", NAMESPACE)
        return Done(0, b"", b"")

    machines_of(losing).responders.append(kill)
    monkeypatch.setattr(s17_verification, "TRIAL_SECONDS", 0.0)
    with pytest.raises(StageTimeout, match="what was written is not there"):
        step(losing, "lose an API server").act()


def test_the_certificate_that_ends_first_is_told(tmp_path: Path) -> None:
    site = live_site(tmp_path, profile=OPENSHIFT)
    site.assets = usual(OPENSHIFT, 1, 1).assets
    site.now = lambda: NOW + timedelta(hours=5)
    step(site, "how long").act()
    (told,) = told_by(site)
    assert told.startswith("saw the certificate that ends first is ")
    # Short lives are 48 hours.
    assert told.endswith(", in 43 h")


def test_a_webhook_that_was_cleaned_away_is_laid_again_and_asked(site: Site, trial: MadeUpTrial, shelf: Stock) -> None:
    site.trial = trial
    ready = pod(trial.pod, NAMESPACE, node_name=site.cluster.masters[0].name)
    naps_of(site).plans.append(lambda: shelf.put(ready))
    step(site, "judged directly").act()
    assert "saw the webhook is asked directly: one object allowed, one denied" in told_by(site)
    shelf.take("ValidatingWebhookConfiguration", WEBHOOK, version="admissionregistration.k8s.io/v1")
    shelf.take("Pod", trial.pod, NAMESPACE)
    shelf.take("Namespace", NAMESPACE)


def test_nothing_of_all_trials_is_left(site: Site, trial: MadeUpTrial, shelf: Stock) -> None:
    site.trial = trial
    shelf.put(
        namespace(NAMESPACE),
        config_map(watching.NAME, "kube-system", count="5"),
        config_map("umbilical-nonce", "kube-system", nonce="x"),
    )
    naps_of(site).plans.append(lambda: shelf.call(lambda client: finalize(client, NAMESPACE)))
    for _ in range(2):
        step(site, "remove what the trial made").act()
    for name in (watching.NAME, "umbilical-nonce"):
        assert kube.get(site, objects.CONFIG_MAP, name, "kube-system") is None
    assert kube.get(site, objects.NAMESPACE, NAMESPACE) is None


def test_the_bootstrap_machine_goes_for_good_and_once(site: Site) -> None:
    machines_of(site).powers["bootstrap"] = Power.OFF
    delete = step(site, "delete the bootstrap machine")
    assert delete.undo is not None
    assert delete.undo.name == NEVER
    delete.act()
    delete.act()
    assert machines_of(site).calls == ["remove bootstrap"]


def test_openshifts_etcd_is_its_operators_business(tmp_path: Path, site: Site, trial: MadeUpTrial) -> None:
    switch_on(site)
    site.trial = trial
    ids = [check.id for check in STAGE.checks(site)]
    assert ids == ["nodes-exact", "nodes-ready", "system-pods", "etcd-terms", "trial-gone"]
    assert "etcd-terms" not in [check.id for check in STAGE.checks(live_site(tmp_path, profile=OPENSHIFT))]
    assert STAGE.checks(site)[0].judge(site).outcome is Outcome.FAILED
