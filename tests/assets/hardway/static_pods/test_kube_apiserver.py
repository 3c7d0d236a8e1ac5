"""kube-apiserver's pods: the same words on the bootstrap node and on masters, but for addresses and the tunnel."""

import pytest
from tests.support.hardway_pods import document, flags

from umbilical.assets.hardway.cluster import Profile

BOOTSTRAP = "static-pods/bootstrap/kube-apiserver-bootstrap.yaml"
MASTER = "late-static-pods/master-1/kube-apiserver.yaml"


@pytest.mark.parametrize("profile", Profile)
def test_each_name_of_the_api_has_its_certificate(profile: Profile) -> None:
    told = flags(document(profile, BOOTSTRAP))
    named = {value.rpartition(":")[2]: value.partition(",")[0] for value in told["tls-sni-cert-key"]}
    assert named == {
        "localhost,127.0.0.1": "/etc/kubernetes/secrets/kube-apiserver-localhost-server.crt",
        "api.ocp4.example.com": "/etc/kubernetes/secrets/kube-apiserver-lb-server.crt",
        "api-int.ocp4.example.com": "/etc/kubernetes/secrets/kube-apiserver-internal-lb-server.crt",
    }
    assert told["tls-cert-file"] == ["/etc/kubernetes/secrets/kube-apiserver-service-network-server.crt"]


@pytest.mark.parametrize("profile", Profile)
def test_both_token_keys_are_known_and_the_bound_one_signs(profile: Profile) -> None:
    told = flags(document(profile, BOOTSTRAP))
    assert [path.rpartition("/")[2] for path in told["service-account-key-file"]] == [
        "service-account.pub",
        "bound-service-account-signing-key.pub",
    ]
    assert told["service-account-signing-key-file"][0].endswith("/bound-service-account-signing-key.key")


def test_the_front_proxys_name_is_that_of_its_certificate() -> None:
    assert flags(document(Profile.OPENSHIFT, BOOTSTRAP))["requestheader-allowed-names"] == [
        "system:kube-apiserver-proxy"
    ]


def test_only_openshift_stores_below_another_prefix() -> None:
    assert flags(document(Profile.OPENSHIFT, BOOTSTRAP))["etcd-prefix"] == ["kubernetes.io"]
    assert "etcd-prefix" not in flags(document(Profile.KUBERNETES, BOOTSTRAP))


def test_a_master_differs_from_the_bootstrap_node_in_its_address_and_the_tunnel_alone() -> None:
    bootstrap, master = (flags(document(Profile.KUBERNETES, path)) for path in (BOOTSTRAP, MASTER))
    assert {name for name in bootstrap if bootstrap[name] != master.get(name)} == {
        "advertise-address",
        "egress-selector-config-file",
    }
    assert master["advertise-address"] == ["192.168.126.102"]
    assert set(master) < set(bootstrap)


@pytest.mark.parametrize("profile", Profile)
def test_it_drains_before_it_ends(profile: Profile) -> None:
    pod = document(profile, BOOTSTRAP)
    [delay] = flags(pod)["shutdown-delay-duration"]
    grace = pod["spec"]["terminationGracePeriodSeconds"]
    expected = ("70s", 135) if profile is Profile.OPENSHIFT else ("10s", 30)
    assert (delay, grace) == expected


@pytest.mark.parametrize("profile", Profile)
def test_probes_ask_as_nobody_and_never_for_etcd_while_it_lives(profile: Profile) -> None:
    pod = document(profile, BOOTSTRAP)
    assert flags(pod)["anonymous-auth"] == ["true"]
    [container] = pod["spec"]["containers"]
    paths = {kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}
    assert paths == {"startup": "/livez", "liveness": "/livez?exclude=etcd", "readiness": "/readyz"}
