"""etcd's pods: a founder on the bootstrap node, members that join it one after the other."""

import pytest
from tests.support.hardway_pods import document, flags, seat

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.static_pods.etcd import initial_cluster, member_name

BOOTSTRAP = "static-pods/bootstrap/etcd-bootstrap.yaml"


@pytest.mark.parametrize("profile", Profile)
def test_the_bootstrap_member_founds_the_cluster_under_the_name_that_operators_search(profile: Profile) -> None:
    told = flags(document(profile, BOOTSTRAP))
    assert told["name"] == ["etcd-bootstrap"]
    assert told["initial-cluster"] == ["etcd-bootstrap=https://192.168.126.100:2380"]
    assert told["initial-cluster-state"] == ["new"]
    assert told["client-cert-auth"] == told["peer-client-cert-auth"] == ["true"]


def test_a_master_joins_those_that_joined_before() -> None:
    told = flags(document(Profile.KUBERNETES, "late-static-pods/master-1/etcd.yaml"))
    assert told["initial-cluster-state"] == ["existing"]
    assert told["initial-cluster"][0].split(",") == [
        "etcd-bootstrap=https://192.168.126.100:2380",
        "master-0.ocp4.example.com=https://192.168.126.101:2380",
        "master-1.ocp4.example.com=https://192.168.126.102:2380",
    ]
    assert told["name"] == ["master-1.ocp4.example.com"]


def test_every_member_stands_in_its_own_list() -> None:
    for node in ("bootstrap", "master-0", "master-2"):
        here = seat(Profile.KUBERNETES, node)
        names = [entry.partition("=")[0] for entry in initial_cluster(here).split(",")]
        assert names[-1] == member_name(here.node)


@pytest.mark.parametrize("profile", Profile)
def test_all_masters_may_be_learners_at_once(profile: Profile) -> None:
    pod = document(profile, BOOTSTRAP)
    variables = {one["name"]: one["value"] for one in pod["spec"]["containers"][0]["env"]}
    said = flags(pod).get("max-learners", [variables.get("ETCD_MAX_LEARNERS")])
    assert said == ["3"]
    assert variables["ETCD_CIPHER_SUITES"].count("GCM") == 4


def test_what_etcd_3_5_would_exit_at_is_no_flag_on_openshift() -> None:
    told = flags(document(Profile.OPENSHIFT, BOOTSTRAP))
    assert not {"feature-gates", "max-learners"} & set(told)


def test_openshifts_probe_asks_with_the_serving_pair() -> None:
    [container] = document(Profile.OPENSHIFT, BOOTSTRAP)["spec"]["containers"]
    command = container["livenessProbe"]["exec"]["command"]
    assert command[0] == "etcdctl"
    assert command[-2:] == ["endpoint", "health"]
    assert "--cert=/etc/kubernetes/secrets/etcd-serving-bootstrap.crt" in command
    assert (container["livenessProbe"]["initialDelaySeconds"], container["livenessProbe"]["periodSeconds"]) == (45, 30)


def test_a_learner_is_not_killed_for_being_one() -> None:
    [container] = document(Profile.KUBERNETES, "late-static-pods/master-0/etcd.yaml")["spec"]["containers"]
    assert container["startupProbe"]["httpGet"]["path"] == container["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["host"] == "127.0.0.1"
