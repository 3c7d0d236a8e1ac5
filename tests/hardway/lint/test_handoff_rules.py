"""Rules about machine-config commands and about what operators take over: the faults that each notices."""

import base64
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from tests.support import hardway
from tests.support.hardway_everything import everything
from tests.support.hardway_lint import Sample, Subject, changed, complaint
from tests.support.hardway_manifests import added, dropped, edited
from tests.support.hardway_nodes import BASE_SCRIPT, edit_config

from umbilical.hardway.artifacts.manifests.objects import certificate_secret
from umbilical.hardway.config.cluster import ClusterProfile
from umbilical.hardway.lint.handoff_rules import CONTROLLERS, OBJECTS, PRIVILEGED, SIGNERS
from umbilical.hardway.lint.machine_config_rules import TEMPLATE_IMAGES
from umbilical.hardway.pki.certificate_set import HardwaySet

BOOTSTRAP: Final = "bootstrap.ocp4.example.com"
PREFIX: Final = "auth.openshift.io/certificate"
SCRIPT: Final = "machine-config/render.sh"
REFERENCES: Final = "machine-config/image-references"


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


def _script(old: str, new: str) -> Sample:
    return lambda seen: seen.replace(SCRIPT, old, new)


def _without_tag(name: str) -> Sample:
    def change(value: Any) -> None:
        value["spec"]["tags"] = [one for one in value["spec"]["tags"] if one["name"] != name]

    return lambda seen: seen.edit_json(REFERENCES, change)


def _tagged_reference(seen: Subject) -> None:
    seen.edit_json(REFERENCES, lambda value: value["spec"]["tags"][0]["from"].update(name="quay.io/a/b:1"))


def _swapped(seen: Subject) -> None:
    """The controller first."""
    head, middle, tail = _parts(seen)
    seen.write(SCRIPT, f"{head}{tail}{middle}".encode())


def _parts(seen: Subject) -> tuple[str, str, str]:
    text = seen.assets[SCRIPT].content.decode()
    head, _, rest = text.partition("# Write the ControllerConfig")
    middle, _, tail = rest.partition("# Merge the MachineConfigs")
    return head, f"# Write the ControllerConfig{middle}", f"# Merge the MachineConfigs{tail}"


def _one_result(seen: Subject) -> None:
    seen.write("machine-config/work/mcc-output/machine-configs/rendered-master-0.yaml", b"kind: MachineConfig\n")


def _without(name: str) -> Callable[[dict[str, Any]], None]:
    """Drop a file or a unit of an Ignition config."""

    def change(value: dict[str, Any]) -> None:
        for entries, key in ((value["storage"]["files"], "path"), (value["systemd"]["units"], "name")):
            entries[:] = [one for one in entries if one[key] != name]

    return change


def _by_tag(value: Any) -> None:
    value["spec"]["template"]["spec"]["containers"][0]["image"] = "quay.io/a/b:latest"


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
    "CFG-05": edited("DaemonSet", "konnectivity-agent", _by_tag),
    "CFG-05 static pod": lambda seen: seen.edit(
        "static-pods/bootstrap/etcd-bootstrap.yaml",
        lambda pod: pod["spec"]["containers"][0].update(image="quay.io/etcd:v3"),
    ),
    "CFG-05 waiting pod": lambda seen: seen.edit(
        "late-static-pods/bootstrap/cvo-bootstrap.yaml", lambda pod: pod["spec"]["containers"][0].pop("image")
    ),
    "CFG-05 reference": _tagged_reference,
    "CFG-05 command": _script("@sha256:0000000000000000000000000000000000000000000000000000000000000005", ":5"),
    "CFG-05 release": _script("--release-image=quay.io", "--other=quay.io"),
    "MCO-01": _script("--entrypoint /usr/bin/machine-config-controller", ""),
    "MCO-01 no operator": _script("--release-image=", "--other="),
    "MCO-01 order": _swapped,
    "MCO-01 version": _script("--payload-version=4.18.0\n\nfor", "--payload-version=4.18.1\n\nfor"),
    "MCO-01 no version": _script("    --payload-version=4.18.0 \\\n", ""),
    "MCO-01 results": _one_result,
    "MCO-01 no script": lambda seen: seen.remove(SCRIPT),
    "MCO-01 no shell": _script("podman run", "podman run '"),
    "MCO-02": lambda seen: seen.remove("machine-config/manifests/99_feature-gate.yaml"),
    "MCO-02 input": lambda seen: seen.remove("machine-config/tls/root-ca.crt"),
    "MCO-02 infrastructure": lambda seen: seen.remove("machine-config/manifests/cluster-infrastructure-02-config.yml"),
    "MCO-02 pull secret": lambda seen: seen.remove("machine-config/manifests/openshift-config-secret-pull-secret.yaml"),
    "MCO-02 no references": lambda seen: seen.remove(REFERENCES),
    "MCO-02 no JSON": lambda seen: seen.write(REFERENCES, b"{"),
    **{f"MCO-02 {tag}": _without_tag(tag) for tag in TEMPLATE_IMAGES},
    "MCO-02 not copied": _script('cp -- "$work"/mco-bootstrap/bootstrap/manifests/* "$work/mcc-input/"\n', ""),
    "MCO-02 ours not copied": _script('"$work"/manifests/* "$work/image-references"', '"$work/image-references"'),
    "MCO-02 references not copied": _script(' "$work/image-references" "$work/mcc-input/"', ' "$work/mcc-input/"'),
    "MCO-02 secret elsewhere": _script("--pull-secret=/assets/mcc-input/", "--pull-secret=/other/"),
    "MCO-03": edit_config("master-0", _without(BASE_SCRIPT)),
    "MCO-03 bridge": edit_config("master-0", _without("ovs-configuration.service")),
    "MCO-03 address": edit_config("worker-0", _without("nodeip-configuration.service")),
}


def test_the_evidence_says_that_etcd_would_not_trust_its_successors() -> None:
    found = complaint("PKI-10", changed(everything(ClusterProfile.OPENSHIFT), SAMPLES["PKI-10 ignition"]))
    assert found is not None
    assert "Secret openshift-etcd/etcd-signer does not verify" in found
    assert "etcd-serving-bootstrap.crt" in found


def test_both_results_are_enough() -> None:
    def both(seen: Subject) -> None:
        for pool in ("master", "worker"):
            seen.write(f"machine-config/work/mcc-output/machine-configs/rendered-{pool}-0.yaml", b"")

    assert complaint("MCO-01", changed(everything(ClusterProfile.OPENSHIFT), both)) is None
