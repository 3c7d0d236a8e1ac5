"""kube-scheduler's pods."""

import pytest
from tests.support.hardway_pods import document, flags

from umbilical.assets.hardway.cluster import Profile

BOOTSTRAP = "static-pods/bootstrap/kube-scheduler-bootstrap.yaml"


@pytest.mark.parametrize("profile", Profile)
def test_it_sees_its_kubeconfig_and_no_key_of_others(profile: Profile) -> None:
    pod = document(profile, BOOTSTRAP)
    path = "/etc/kubernetes/kubeconfigs/kube-scheduler.kubeconfig"
    assert [volume["hostPath"]["path"] for volume in pod["spec"]["volumes"]] == [path]
    assert flags(pod)["kubeconfig"] == flags(pod)["authorization-kubeconfig"] == [path]


@pytest.mark.parametrize("profile", Profile)
def test_the_lease_is_longer_than_the_tries_to_renew_it(profile: Profile) -> None:
    told = flags(document(profile, BOOTSTRAP))
    names = ("lease-duration", "renew-deadline", "retry-period")
    seconds = [int(told[f"leader-elect-{name}"][0].rstrip("s")) for name in names]
    assert seconds[0] > seconds[1] > seconds[2]
    assert told["leader-elect-resource-lock"] == ["leases"]


def test_openshifts_schedulers_share_one_lease_in_a_namespace_of_their_own() -> None:
    name = "leader-elect-resource-namespace"
    assert flags(document(Profile.OPENSHIFT, BOOTSTRAP))[name] == ["openshift-kube-scheduler"]
    assert name not in flags(document(Profile.KUBERNETES, BOOTSTRAP))
