"""Rules about machine-config commands and images: they hold, and each fires."""

import json
from typing import Any, Final

import pytest
from tests.support.hardway_everything import everything, usual
from tests.support.hardway_lint import Sample, Subject, changed, complaint
from tests.support.hardway_manifests import edited

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.lint.machine_config_rules import RULES, TEMPLATE_IMAGES

BY_ID: Final = {rule.id: rule for rule in RULES}
SCRIPT: Final = "machine-config/render.sh"
REFERENCES: Final = "machine-config/image-references"


def _script(old: str, new: str) -> Sample:
    return lambda seen: seen.replace(SCRIPT, old, new)


def _without_tag(name: str) -> Sample:
    def sample(seen: Subject) -> None:
        value = json.loads(seen.assets[REFERENCES].content)
        value["spec"]["tags"] = [one for one in value["spec"]["tags"] if one["name"] != name]
        seen.write(REFERENCES, json.dumps(value).encode())

    return sample


def _tagged_reference(seen: Subject) -> None:
    value = json.loads(seen.assets[REFERENCES].content)
    value["spec"]["tags"][0]["from"]["name"] = "quay.io/a/b:1"
    seen.write(REFERENCES, json.dumps(value).encode())


def _swapped(seen: Subject) -> None:
    """The controller first."""
    head, middle, tail = _parts(seen)
    seen.write(SCRIPT, f"{head}{tail}{middle}".encode())


def _parts(seen: Subject) -> tuple[str, str, str]:
    text = seen.assets[SCRIPT].content.decode()
    head, _, rest = text.partition("# Make the controller's")
    middle, _, tail = rest.partition("# Merge all")
    return head, f"# Make the controller's{middle}", f"# Merge all{tail}"


def _one_result(seen: Subject) -> None:
    seen.write("machine-config/work/mcc-output/machine-configs/rendered-master-0.yaml", b"kind: MachineConfig\n")


def _by_tag(value: Any) -> None:
    value["spec"]["template"]["spec"]["containers"][0]["image"] = "quay.io/a/b:latest"


SAMPLES: Final[dict[str, Sample]] = {
    "CFG-05": edited("DaemonSet", "konnectivity-agent", _by_tag),
    "CFG-05 static pod": lambda seen: seen.edit(
        "static-pods/bootstrap/etcd-bootstrap.yaml",
        lambda pod: pod["spec"]["containers"][0].update(image="quay.io/etcd:v3"),
    ),
    "CFG-05 waiting pod": lambda seen: seen.edit(
        "late-static-pods/bootstrap/cvo-bootstrap.yaml",
        lambda pod: pod["spec"]["containers"][0].pop("image"),
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
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
@pytest.mark.parametrize(("masters", "workers"), [(3, 2), (1, 0)])
def test_a_rule_holds_for_what_is_rendered(rule: Any, masters: int, workers: int) -> None:
    assert complaint(rule, usual(Profile.OPENSHIFT, masters, workers)) is None
    assert complaint(rule, everything(Profile.OPENSHIFT)) is None


@pytest.mark.parametrize("name", SAMPLES)
def test_a_rule_fires_after_the_change_that_it_is_there_for(name: str) -> None:
    found = complaint(BY_ID[name.split(maxsplit=1)[0]], changed(everything(Profile.OPENSHIFT), SAMPLES[name]))
    assert found is not None


def test_every_rule_has_a_sample() -> None:
    assert {name.split()[0] for name in SAMPLES} == set(BY_ID)


def test_both_results_are_enough() -> None:
    def both(seen: Subject) -> None:
        for pool in ("master", "worker"):
            seen.write(f"machine-config/work/mcc-output/machine-configs/rendered-{pool}-0.yaml", b"")

    assert complaint(BY_ID["MCO-01"], changed(everything(Profile.OPENSHIFT), both)) is None
