"""Who is allowed what by manifests."""

from typing import Any

import pytest
from tests.support.hardway_lint import Subject, changed
from tests.support.hardway_pki import certificate, edit_objects, rename_subject, rendered

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.lint.grants import Identity, identity, may_use, roles_of

KUBE_APISERVER = Identity("system:kube-apiserver", frozenset({"kube-master"}))


def allowed(subject: Subject, who: Identity = KUBE_APISERVER) -> bool:
    return may_use(subject.facts(), who, "nodes/proxy", ("get", "create"))


def test_a_certificate_is_read_as_user_and_groups() -> None:
    found = identity(certificate(rendered(Profile.OPENSHIFT), "kubelet-client"))
    assert found.user == "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper"
    assert "system:serviceaccounts" in found.groups
    assert "system:node-bootstrapper" in roles_of(rendered(Profile.OPENSHIFT).facts(), found)


@pytest.mark.parametrize("profile", Profile)
def test_a_binding_of_the_user_counts(profile: Profile) -> None:
    assert allowed(rendered(profile))
    assert not allowed(rendered(profile), Identity("somebody", frozenset()))
    assert not allowed(changed(rendered(profile), rename_subject("system:kube-apiserver", "somebody")))


def test_a_binding_of_the_group_counts() -> None:
    def bind_group(binding: dict[str, Any]) -> None:
        for one in binding.get("subjects") or ():
            if one["name"] == "system:kube-apiserver":
                one.update(kind="Group", name="kube-master")

    bound = changed(
        rendered(Profile.KUBERNETES), lambda subject: edit_objects(subject, "ClusterRoleBinding", bind_group)
    )
    assert allowed(bound)
    assert not allowed(bound, Identity("system:kube-apiserver", frozenset()))


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
        allowed(changed(rendered(Profile.OPENSHIFT), lambda subject: edit_objects(subject, "ClusterRole", change)))
        is is_enough
    )


def test_masters_and_cluster_admins_may_do_everything() -> None:
    nothing = changed(rendered(Profile.KUBERNETES), rename_subject("system:kube-apiserver", "somebody"))
    assert allowed(nothing, Identity("x", frozenset({"system:masters"})))
    everything = changed(
        rendered(Profile.KUBERNETES),
        lambda subject: edit_objects(
            subject, "ClusterRoleBinding", lambda one: one["roleRef"].update(name="cluster-admin")
        ),
    )
    assert allowed(everything)
