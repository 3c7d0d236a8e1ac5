"""Rules about all objects together, in both profiles: they hold, and each fires."""

from typing import Any, Final

import pytest
from tests.support.hardway_everything import everything, usual
from tests.support.hardway_lint import Sample, Subject, changed, complaint
from tests.support.hardway_manifests import added, edited

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.lint.object_rules import RULES

BY_ID: Final = {rule.id: rule for rule in RULES}
BOOTKUBE: Final = "/usr/local/bin/bootkube.sh"


def _binding(kind: str, role: str, namespace: str = "") -> dict[str, Any]:
    place = {"namespace": namespace} if namespace else {}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": {"name": "more", **place},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [],
    }


def _config_map(namespace: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "more", "namespace": namespace}}


def _ends_with(line: bytes) -> Sample:
    return lambda seen: seen.edit_ignition("bootstrap", BOOTKUBE, lambda content: content + line)


SAMPLES: Final[dict[str, Sample]] = {
    "MAN-01": added("09-twice.yaml", _config_map("kube-system"), _config_map("kube-system")),
    "MAN-01 no namespace": added("00-early.yaml", _config_map("somewhere")),
    "MAN-01 no role": added("09-binding.yaml", _binding("ClusterRole", "nobody")),
    "MAN-01 role elsewhere": added("09-binding.yaml", _binding("Role", "view", "kube-system")),
    "MAN-01 no kind": added("09-thing.yaml", {"apiVersion": "v1", "metadata": {"name": "a"}}),
    "MAN-01 no name": added("09-thing.yaml", {"apiVersion": "v1", "kind": "Pod", "metadata": []}),
    "MAN-02": _ends_with(b"\noc apply -f /opt/openshift/manifests || true\n"),
    "MAN-02 colon": _ends_with(b"\noc create -f x ||: # later\n"),
    "MAN-02 set": _ends_with(b"\n  set +e\n"),
}


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_holds_for_what_is_rendered(rule: Any, profile: Profile) -> None:
    for seen in (usual(profile), usual(profile, 1, 0), everything(profile)):
        assert complaint(rule, seen) is None


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("name", SAMPLES)
def test_a_rule_fires_after_the_change_that_it_is_there_for(name: str, profile: Profile) -> None:
    assert complaint(BY_ID[name.split(maxsplit=1)[0]], changed(everything(profile), SAMPLES[name])) is not None


def test_every_rule_has_a_sample() -> None:
    assert {name.split()[0] for name in SAMPLES} == set(BY_ID)


def test_a_role_of_openshift_is_none_in_upstream_kubernetes() -> None:
    sample = added("09-binding.yaml", _binding("ClusterRole", "system:node-admin"))
    rule = BY_ID["MAN-01"]
    assert complaint(rule, changed(everything(Profile.OPENSHIFT), sample)) is None
    found = complaint(rule, changed(everything(Profile.KUBERNETES), sample))
    assert found is not None
    assert "system:node-admin" in found


def test_the_machine_config_script_is_judged_too() -> None:
    def ignoring(seen: Subject) -> None:
        seen.replace("machine-config/render.sh", "done\n", "done\nmore || true\n")

    assert complaint(BY_ID["MAN-02"], changed(everything(Profile.OPENSHIFT), ignoring)) is not None


def test_a_comment_about_it_is_no_fault() -> None:
    sample = _ends_with(b"\necho done # not: || true\n")
    assert complaint(BY_ID["MAN-02"], changed(everything(Profile.OPENSHIFT), sample)) is None


def test_a_role_that_a_manifest_brings_may_be_bound() -> None:
    sample = edited(
        "ClusterRoleBinding", "kube-apiserver", lambda one: one["roleRef"].update(name="system:openshift:scc:anyuid")
    )
    assert complaint(BY_ID["MAN-01"], changed(everything(Profile.OPENSHIFT), sample)) is None
