"""Verification of certificates by CA files, keys of tokens, roles of clients, and both ends of the tunnel."""

from dataclasses import replace
from typing import Any

import pytest
from tests.support.hardway_everything import everything
from tests.support.hardway_lint import Subject, changed, copied
from tests.support.hardway_pki import edit_objects, pods, reissue, rename_subject

from umbilical.bootstrap.names import BOOTKUBE
from umbilical.hardway.config.cluster import ClusterProfile
from umbilical.hardway.lint.clients import ClientIdentity, may_use
from umbilical.hardway.lint.facts import Unreadable
from umbilical.hardway.lint.service_proxies import right_faults
from umbilical.hardway.lint.trust import chain_faults, serving_pairs, token_key_faults
from umbilical.hardway.lint.tunnel_ends import lifetime_faults, protocol_faults, socket_faults, tunnel_address_faults
from umbilical.pki.profiles import Usage

KUBE_APISERVER = ClientIdentity("system:kube-apiserver", frozenset({"kube-master"}))
API = "static-pods/bootstrap/kube-apiserver-bootstrap.yaml"


def test_etcd_shows_its_serving_certificate_to_itself() -> None:
    broken = changed(
        everything(ClusterProfile.KUBERNETES),
        lambda subject: reissue(subject, "etcd-serving-master-0", usages=(Usage.SERVER,)),
    )
    found = "\n".join(chain_faults(broken.facts()))
    pair = "tls/etcd-serving-master-0.crt against tls/bundles/etcd-ca-bundle.crt"
    assert f"{pair}: it lacks the extended key usage clientAuth" in found


def test_a_flag_that_names_another_bundle_is_found() -> None:
    path = pods(everything(ClusterProfile.OPENSHIFT), "kube-apiserver")[0]
    old, new = "--requestheader-client-ca-file=/etc/kubernetes/secrets/aggregator-ca-bundle.crt", "etcd-ca-bundle.crt"
    broken = changed(
        everything(ClusterProfile.OPENSHIFT),
        lambda subject: subject.replace(path, old, old.replace("aggregator-ca-bundle.crt", new)),
    )
    [found] = chain_faults(broken.facts())
    assert found.startswith("tls/aggregator-client.crt against tls/bundles/etcd-ca-bundle.crt: unable to get issuer")


def test_a_pair_without_names_answers_for_those_in_its_certificate() -> None:
    def unnamed(subject: Subject) -> None:
        subject.replace(pods(subject, "kube-apiserver")[0], ".key:api.ocp4.example.com", ".key")

    found = serving_pairs(changed(everything(ClusterProfile.OPENSHIFT), unnamed).facts())[0]
    assert found.shown_for("api.ocp4.example.com").path == "tls/kube-apiserver-lb-server.crt"


def test_an_address_is_covered_however_it_is_written() -> None:
    default = serving_pairs(everything(ClusterProfile.KUBERNETES).facts())[0].default
    assert default.covers("0:0:0:0:0:0:0:1")
    assert default.covers("172.30.0.1")
    assert not default.covers("172.30.0.2")
    assert not default.covers("api.ocp4.example.com")


def test_one_kube_apiserver_that_lacks_a_key_is_named() -> None:
    def change(subject: Subject) -> None:
        path = next(path for path in pods(subject, "kube-apiserver") if "master-1" in path)
        subject.replace(
            path,
            "key-file=/etc/kubernetes/secrets/service-account.pub",
            "key-file=/etc/kubernetes/secrets/bound-service-account-signing-key.pub",
        )

    assert list(token_key_faults(changed(everything(ClusterProfile.KUBERNETES), change).facts())) == [
        "late-static-pods/master-1/kube-apiserver.yaml lacks the public key of tls/service-account.key"
    ]


@pytest.mark.parametrize("path", ["tls/service-account.pub", "tls/service-account.key"])
def test_what_cannot_be_read_is_told(path: str) -> None:
    broken = changed(everything(ClusterProfile.KUBERNETES), lambda subject: subject.write(path, b"nothing"))
    with pytest.raises(Unreadable, match=path):
        list(token_key_faults(broken.facts()))


def allowed(subject: Subject, who: ClientIdentity = KUBE_APISERVER) -> bool:
    return may_use(subject.facts(), who, "nodes/proxy", ("get", "create"))


def test_a_binding_of_the_group_counts() -> None:
    def bind_group(binding: dict[str, Any]) -> None:
        for one in binding.get("subjects") or ():
            if one["name"] == "system:kube-apiserver":
                one.update(kind="Group", name="kube-master")

    bound = changed(
        everything(ClusterProfile.KUBERNETES), lambda subject: edit_objects(subject, "ClusterRoleBinding", bind_group)
    )
    assert allowed(bound)
    assert not allowed(bound, ClientIdentity("system:kube-apiserver", frozenset()))


@pytest.mark.parametrize(
    ("rule", "is_enough"),
    [
        ({"verbs": ["*"]}, True),
        ({"verbs": ["get"]}, False),
        ({"resources": ["nodes/*"]}, True),
        ({"resources": ["nodes"]}, False),
        ({"apiGroups": ["apps"]}, False),
    ],
    ids=str,
)
def test_a_role_counts_for_what_its_rules_say(rule: dict[str, Any], is_enough: bool) -> None:
    def change(role: dict[str, Any]) -> None:
        if role["metadata"]["name"] == "kube-apiserver":
            role["rules"] = [{"apiGroups": [""], "resources": ["nodes/proxy"], "verbs": ["get", "create"], **rule}]

    assert (
        allowed(
            changed(everything(ClusterProfile.OPENSHIFT), lambda subject: edit_objects(subject, "ClusterRole", change))
        )
        is is_enough
    )


def test_masters_and_cluster_admins_may_do_everything() -> None:
    nothing = changed(everything(ClusterProfile.KUBERNETES), rename_subject("system:kube-apiserver", "somebody"))
    assert allowed(nothing, ClientIdentity("x", frozenset({"system:masters"})))
    unlimited = changed(
        everything(ClusterProfile.KUBERNETES),
        lambda subject: edit_objects(
            subject, "ClusterRoleBinding", lambda one: one["roleRef"].update(name="cluster-admin")
        ),
    )
    assert allowed(unlimited)


def faults(subject: Subject) -> list[str]:
    return list(tunnel_address_faults(subject.facts()))


def other_address(subject: Subject) -> None:
    subject.edit_ignition("bootstrap", BOOTKUBE, lambda text: text.replace(b"192.168.126.100", b"10.0.0.9"))


def test_another_address_is_told() -> None:
    found = faults(changed(everything(ClusterProfile.OPENSHIFT), other_address))
    assert found == [
        "manifests/08-tunnel.yaml: agents dial 192.168.126.100, but the tunnel's certificate is for 10.0.0.9"
    ]


def test_a_script_that_makes_no_certificate_is_told() -> None:
    def change(subject: Subject) -> None:
        subject.edit_ignition("bootstrap", BOOTKUBE, lambda text: b"#!/bin/bash\n")

    assert "makes no certificates" in faults(changed(everything(ClusterProfile.OPENSHIFT), change))[0]


def test_without_a_tunnel_nobody_asks() -> None:
    broken = changed(everything(ClusterProfile.OPENSHIFT), other_address)
    assert faults(replace(broken, has_tunnel=False)) == []


def test_the_egress_selector_is_read_where_the_flag_leads_to() -> None:
    subject = copied(everything(ClusterProfile.OPENSHIFT))
    subject.replace(API, "egress-selector-config.yaml", "cluster-policy-controller-config.yaml")
    assert "the egress selections are none" in "".join(protocol_faults(subject.facts()))


def test_a_flag_that_leads_out_of_the_configs_is_told() -> None:
    subject = copied(everything(ClusterProfile.KUBERNETES))
    subject.replace(API, "/etc/kubernetes/config/egress-selector-config.yaml", "/etc/kubernetes/secrets/egress.yaml")
    with pytest.raises(Unreadable, match="not in /etc/kubernetes/bootstrap-configs"):
        list(socket_faults(subject.facts()))


def test_a_script_that_makes_no_certificates_is_told() -> None:
    subject = copied(everything(ClusterProfile.KUBERNETES))
    subject.edit_ignition("bootstrap", BOOTKUBE, lambda _: b"#!/bin/bash\n")
    with pytest.raises(Unreadable, match="has no lifetime"):
        list(lifetime_faults(subject.facts()))


def test_a_group_may_have_the_right_for_its_users() -> None:
    subject = copied(everything(ClusterProfile.OPENSHIFT))

    def to_group(documents: list[dict[str, object]]) -> None:
        [binding] = [one for one in documents if "kube-proxy" in str(one["metadata"])]
        binding["subjects"] = [{"kind": "Group", "name": "system:serviceaccounts"}]

    subject.edit("manifests/03-rbac.yaml", to_group)
    assert list(right_faults(subject.facts())) == []
