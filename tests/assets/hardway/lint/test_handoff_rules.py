"""Rules about what operators take over: they hold, and each fires, for every single object."""

import base64
from functools import cache
from typing import Any, Final

import pytest
from tests.support import hardway
from tests.support.hardway_everything import everything, usual
from tests.support.hardway_lint import Sample, Subject, changed, complaint
from tests.support.hardway_manifests import added, dropped, edited

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.lint.handoff_rules import CONTROLLERS, OBJECTS, PRIVILEGED, RULES, SIGNERS
from umbilical.assets.hardway.manifests.objects import certificate_secret
from umbilical.pki.hardway_set import HardwaySet

BY_ID: Final = {rule.id: rule for rule in RULES}
BOOTSTRAP: Final = "bootstrap.ocp4.example.com"
PREFIX: Final = "auth.openshift.io/certificate"


@cache
def _strangers() -> HardwaySet:
    """Certificates of another cluster of the same names."""
    return hardway.certificates(hardway.cluster())


def _another_signer(namespace: str, name: str) -> Sample:
    """Put a signer in place that signed nothing of this cluster: dates and annotations fit each other."""

    def change(value: Any) -> None:
        value.update(certificate_secret(namespace, name, _strangers()["etcd-signer"]))

    return edited("Secret", name, change)


def _etcd_of_another_cluster(seen: Subject) -> None:
    pair = _strangers()["etcd-serving-bootstrap"]
    seen.edit_ignition(
        "bootstrap", "/etc/kubernetes/bootstrap-secrets/etcd-serving-bootstrap.crt", lambda _: pair.certificate
    )


def _annotation(name: str, value: str) -> Sample:
    return edited(
        "Secret", "etcd-signer", lambda one: one["metadata"]["annotations"].update({f"{PREFIX}-{name}": value})
    )


def _without_key(kind: str, name: str, key: str) -> Sample:
    return edited(kind, name, lambda one: one["data"].pop(key, None))


def _unlabelled(value: Any) -> None:
    value["metadata"].pop("labels")


SAMPLES: Final[dict[str, Sample]] = {
    "HO-01": dropped("Secret", "etcd-signer", "openshift-etcd"),
    **{f"HO-01 {one.secret}": dropped("Secret", one.secret, one.namespace) for one in SIGNERS},
    **{f"HO-01 {kind} {namespace}/{name}": dropped(kind, name, namespace) for kind, namespace, name, _ in OBJECTS},
    **{f"HO-01 key {key} of {name}": _without_key(kind, name, key) for kind, _, name, keys in OBJECTS for key in keys},
    **{
        f"HO-01 {kind}": dropped("Secret", f"{kind}-{BOOTSTRAP}", "openshift-etcd")
        for kind in ("etcd-peer", "etcd-serving", "etcd-serving-metrics")
    },
    "HO-01 not together": edited("Secret", "etcd-all-certs", lambda one: one["data"].pop(f"etcd-peer-{BOOTSTRAP}.key")),
    "HO-01 service": dropped("Service", "etcd", "openshift-etcd"),
    "HO-01 port": edited("Service", "etcd", lambda one: one["spec"]["ports"].pop()),
    "HO-01 odd port": edited("Service", "etcd", lambda one: one["spec"].update(ports=[{"port": []}])),
    "HO-01 bootstrapper": dropped("ClusterRoleBinding", "system-bootstrap-node-bootstrapper"),
    "HO-01 kubelets": dropped("ClusterRole", "kube-apiserver"),
    **{f"HO-01 {one}": dropped("ClusterRole", f"system:openshift:controller:{one}") for one in CONTROLLERS},
    "HO-01 constraints": lambda seen: seen.remove("manifests/05-security-constraints.yaml"),
    "HO-01 constraint": dropped("SecurityContextConstraints", "restricted-v2"),
    "HO-01 constraint's role": dropped("ClusterRole", "system:openshift:scc:restricted-v2"),
    "HO-01 constraint's binding": dropped("ClusterRoleBinding", "system:openshift:scc:restricted-v2"),
    **{f"HO-01 namespace {one}": edited("Namespace", one, _unlabelled) for one in PRIVILEGED},
    "HO-01 complete": added(
        "09-bootstrap.yaml",
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bootstrap", "namespace": "kube-system"}},
    ),
    "PKI-10": _another_signer("openshift-etcd", "etcd-signer"),
    **{f"PKI-10 {one.secret}": _another_signer(one.namespace, one.secret) for one in SIGNERS if one.signed},
    "PKI-10 ignition": _etcd_of_another_cluster,
    "PKI-10 not before": _annotation("not-before", "2020-01-01T00:00:00Z"),
    "PKI-10 not after": _annotation("not-after", "2020-01-01T00:00:00Z"),
    "PKI-10 issuer": _annotation("issuer", "other"),
    "PKI-10 no dates": edited("Secret", "csr-signer-signer", lambda one: one["metadata"].pop("annotations")),
    "PKI-10 type": edited("Secret", "etcd-signer", lambda one: one.update(type="Opaque")),
    "PKI-10 label": edited("Secret", "etcd-signer", _unlabelled),
    "PKI-10 no certificate": edited(
        "Secret", "etcd-signer", lambda one: one["data"].update({"tls.crt": base64.b64encode(b"x").decode()})
    ),
    "PKI-10 no base64": edited("Secret", "etcd-signer", lambda one: one["data"].update({"tls.crt": "é"})),
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
@pytest.mark.parametrize(("masters", "workers"), [(3, 2), (1, 0)])
def test_a_rule_holds_for_what_is_rendered(rule: Any, masters: int, workers: int) -> None:
    assert complaint(rule, usual(Profile.OPENSHIFT, masters, workers)) is None


@pytest.mark.parametrize("name", SAMPLES)
def test_a_rule_fires_after_the_change_that_it_is_there_for(name: str) -> None:
    found = complaint(BY_ID[name.split(maxsplit=1)[0]], changed(everything(Profile.OPENSHIFT), SAMPLES[name]))
    assert found is not None


def test_every_rule_has_a_sample() -> None:
    assert {name.split()[0] for name in SAMPLES} == set(BY_ID)


def test_the_evidence_says_that_etcd_would_not_trust_its_successors() -> None:
    found = complaint(BY_ID["PKI-10"], changed(everything(Profile.OPENSHIFT), SAMPLES["PKI-10 ignition"]))
    assert found is not None
    assert "Secret openshift-etcd/etcd-signer does not verify" in found
    assert "etcd-serving-bootstrap.crt" in found
