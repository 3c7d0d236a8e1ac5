"""A webhook that a real API server asks: laid once, judged for real, and known failures told by their words."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.api_stock import Stock, pod
from tests.support.control_plane import PROGRAMS
from tests.support.live_site import naps_of, seen_by
from tests.support.made_up_trial import NAMESPACE, WEBHOOK, MadeUpTrial

from umbilical.checks.check import Outcome
from umbilical.cluster import objects
from umbilical.hardway import kube, webhook
from umbilical.hardway.errors import StageTimeout
from umbilical.hardway.site import Site

pytestmark = pytest.mark.real(*PROGRAMS)


@pytest.fixture
def tried(site: Site, trial: MadeUpTrial, shelf: Stock) -> Iterator[Site]:
    site.trial = trial
    yield site
    shelf.take("ValidatingWebhookConfiguration", WEBHOOK, version="admissionregistration.k8s.io/v1")
    shelf.take("Pod", trial.pod, NAMESPACE)
    shelf.take("Namespace", NAMESPACE)


def uid(site: Site) -> str:
    found = kube.get(site, objects.POD, webhook.trial_of(site).pod, NAMESPACE)
    assert found is not None
    return str(found["metadata"]["uid"])


def test_it_is_laid_onto_its_node_and_what_is_there_stays(tried: Site) -> None:
    node = tried.cluster.masters[0]
    webhook.lay(tried, node)
    first = uid(tried)
    webhook.lay(tried, node)
    assert uid(tried) == first
    found = kube.get(tried, objects.POD, "lab-service", NAMESPACE)
    assert objects.field(found or {}, "spec", "nodeName") == node.name


def test_half_of_it_is_made_anew(tried: Site, shelf: Stock) -> None:
    node = tried.cluster.masters[0]
    webhook.lay(tried, node)
    first = uid(tried)
    shelf.take("ValidatingWebhookConfiguration", WEBHOOK, version="admissionregistration.k8s.io/v1")
    # Its kubelet lets go of it after a while.
    naps_of(tried).plans.append(lambda: shelf.take("Pod", "lab-service", NAMESPACE))
    webhook.lay(tried, node)
    assert uid(tried) != first
    assert kube.get(tried, webhook.CONFIGURATION, WEBHOOK) is not None


def test_a_pod_that_failed_for_good_is_made_anew(tried: Site, shelf: Stock) -> None:
    node = tried.cluster.masters[0]
    webhook.lay(tried, node)
    before, trial = uid(tried), webhook.trial_of(tried)
    path = f"{objects.POD.path(trial.namespace, trial.pod)}/status"
    shelf.call(lambda client: kube.merge_patch(client, path, {"status": {"phase": "Failed"}}))
    naps_of(tried).plans.append(lambda: shelf.take("Pod", trial.pod, trial.namespace))
    webhook.lay(tried, node)
    assert uid(tried) != before


def test_a_pod_is_waited_for(tried: Site, shelf: Stock) -> None:
    node = tried.cluster.masters[0]
    webhook.lay(tried, node)
    sight = webhook.pod_sight(webhook.trial_of(tried))
    assert sight.check.judge(tried).outcome is Outcome.FAILED
    shelf.put(pod("lab-service", NAMESPACE, node_name=node.name))
    assert sight.check.judge(tried).evidence == f"10.128.0.7 on {node.name}"


def test_a_real_api_server_asks_it_and_stores_nothing(tried: Site) -> None:
    webhook.lay(tried, tried.cluster.masters[0])
    sight = webhook.asked_sight("asked", "it is asked", None)
    assert sight.wait(tried, 60) == "one object allowed, one denied"
    assert kube.get(tried, objects.CONFIG_MAP, "judged-allow", NAMESPACE) is None


def test_one_that_cannot_be_reached_is_told_with_a_hint(tried: Site, trial: MadeUpTrial, tmp_path: Path) -> None:
    tried.trial = MadeUpTrial(trial._authority, 1)
    webhook.lay(tried, tried.cluster.masters[0])
    with pytest.raises(StageTimeout) as raised:
        webhook.asked_sight("asked", "it is asked", None).wait(tried, 0)
    assert "connection refused" in raised.value.why
    assert "failed calling webhook" in seen_by(tried)[-1]


@pytest.mark.parametrize(
    ("seen", "hint"),
    [
        ("No agent available", "no agent of the tunnel is connected"),
        ("connect: no route to host", "is its egress selector set?"),
        ("context deadline exceeded", "packets to the pod vanish"),
    ],
)
def test_failures_that_are_known_have_their_hints(seen: str, hint: str) -> None:
    signatures = webhook.asked_sight("asked", "", None).signatures
    (found,) = [one.hint for one in signatures if re.search(one.pattern, seen)]
    assert hint in found


def test_only_a_tunnel_makes_the_bootstrap_node_ask(tried: Site) -> None:
    node = tried.cluster.masters[0]
    titles = [step.title for step in webhook.trial_steps(tried, node)]
    assert titles[-1] == "have an object judged through the tunnel"
    tried.has_tunnel = False
    assert [step.title for step in webhook.trial_steps(tried, node)] == titles[:2]
