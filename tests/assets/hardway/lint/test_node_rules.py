"""Rules about nodes: each holds for what is rendered, and fires after the change that it is there for."""

from typing import Any, Final

import pytest
from tests.support.hardway_lint import Sample, Subject, changed, complaint
from tests.support.hardway_nodes import edit_config, lint_subject

from umbilical.assets.hardway import layout
from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.lint.node_rules import API_SERVER_ENV, RULES
from umbilical.assets.hardway.nodes.container_runtime import PAUSE_DROP_IN

BY_ID: Final = {rule.id: rule for rule in RULES}


def _unit(config: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(unit for unit in config["systemd"]["units"] if unit["name"] == name)
    return found


def _with_kubelet_flag(flag: str) -> Sample:
    def change(config: dict[str, Any]) -> None:
        unit = _unit(config, "kubelet.service")
        unit["contents"] = unit["contents"].replace("--v=2", f"{flag} \\\n    --v=2")

    return edit_config("bootstrap", change)


def _without_file(node: str, path: str) -> Sample:
    def change(config: dict[str, Any]) -> None:
        storage = config["storage"]
        assert [entry for entry in storage["files"] if entry["path"] == path]
        storage["files"] = [entry for entry in storage["files"] if entry["path"] != path]

    return edit_config(node, change)


def _replaced(node: str, path: str, old: bytes, new: bytes) -> Sample:
    def sample(seen: Subject) -> None:
        def change(content: bytes) -> bytes:
            assert old in content
            return content.replace(old, new)

        seen.edit_ignition(node, path, change)

    return sample


def _bootkube_below_opt(config: dict[str, Any]) -> None:
    unit = _unit(config, "bootkube.service")
    unit["contents"] = unit["contents"].replace("/usr/local/bin/bootkube.sh", "/opt/openshift/bootkube.sh")
    script = next(entry for entry in config["storage"]["files"] if entry["path"] == "/usr/local/bin/bootkube.sh")
    script["path"] = "/opt/openshift/bootkube.sh"


def _script_by_bash(config: dict[str, Any]) -> None:
    _bootkube_below_opt(config)
    unit = _unit(config, "bootkube.service")
    unit["contents"] = unit["contents"].replace("ExecStart=", "ExecStart=/bin/bash ")


def _script_not_executable(config: dict[str, Any]) -> None:
    script = next(entry for entry in config["storage"]["files"] if entry["path"] == "/usr/local/bin/bootkube.sh")
    script["mode"] = 0o644


SAMPLES: Final[dict[str, Sample]] = {
    "BK-01": _with_kubelet_flag("--kubeconfig=/etc/kubernetes/kubeconfigs/localhost.kubeconfig"),
    "BK-01 with a first identity": _with_kubelet_flag("--bootstrap-kubeconfig=/etc/kubernetes/kubeconfig"),
    "BK-01 without static pods": _replaced("bootstrap", layout.KUBELET_CONFIG, b"staticPodPath", b"staticPodURL"),
    "BK-02": _replaced("bootstrap", layout.KUBELET_CONFIG, b"AlwaysAllow", b"Webhook"),
    "BK-02 with webhook authentication": _replaced(
        "bootstrap", layout.KUBELET_CONFIG, b"  webhook:\n    enabled: false", b"  webhook:\n    enabled: true"
    ),
    "CRIO-01": _replaced("bootstrap", PAUSE_DROP_IN, b"pause_image =", b"pause_image_of_nobody ="),
    "CRIO-01 with another image": _replaced("bootstrap", PAUSE_DROP_IN, b"@sha256:", b"@sha256:f"),
    "CRIO-01 with upstream's anywhere": _replaced(
        "bootstrap", "/usr/local/bin/bootkube.sh", b"set -euo", b"# registry.k8s.io/pause:3.9\nset -euo"
    ),
    "CRIO-02": _replaced("bootstrap", PAUSE_DROP_IN, b"/usr/bin/pod", b"/pause"),
    "CRIO-02 without credentials": _replaced("bootstrap", PAUSE_DROP_IN, b"pause_image_auth_file", b"auth_file"),
    "SE-01": edit_config("bootstrap", _bootkube_below_opt),
    "SE-01 by way of bash": edit_config("bootstrap", _script_by_bash),
    "SE-01 not executable": edit_config("bootstrap", _script_not_executable),
    "AU-01": _without_file("worker-1", API_SERVER_ENV),
    "AU-01 with another host": _replaced("master-0", API_SERVER_ENV, b"api-int.", b"api."),
    "AU-01 with another port": _replaced("master-0", API_SERVER_ENV, b"'6443'", b"'443'"),
}


def trees() -> list[tuple[str, Subject]]:
    return [
        *((profile.value, lint_subject(profile)) for profile in Profile),
        ("openshift-based", lint_subject(Profile.OPENSHIFT, is_based=True)),
    ]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_holds_for_what_is_rendered(rule: Any) -> None:
    judged = [seen for _, seen in trees() if seen.cluster.profile in rule.profiles]
    assert judged
    assert [complaint(rule, seen) for seen in judged] == [None] * len(judged)


@pytest.mark.parametrize("name", list(SAMPLES))
def test_a_rule_fires(name: str) -> None:
    rule = BY_ID[name.split(maxsplit=1)[0]]
    for _, seen in trees()[:2]:
        if seen.cluster.profile in rule.profiles:
            assert complaint(rule, changed(seen, SAMPLES[name])), name


def test_every_rule_has_a_failing_sample() -> None:
    assert {name.split()[0] for name in SAMPLES} == set(BY_ID)


def test_what_cannot_be_read_is_a_fault_and_no_crash() -> None:
    seen = changed(lint_subject(Profile.OPENSHIFT), lambda seen: seen.write("ignition/bootstrap.ign", b"{", 0o600))
    for rule in RULES:
        if rule.id != "AU-01":
            assert "bootstrap.ign" in (complaint(rule, seen) or ""), rule.id


def test_without_a_list_of_images_nobody_knows_the_pause_image() -> None:
    seen = changed(lint_subject(Profile.OPENSHIFT), lambda seen: seen.remove("machine-config/image-references"))
    assert "image-references" in (complaint(BY_ID["CRIO-01"], seen) or "")


def test_a_kubelet_without_a_file_has_the_old_defaults() -> None:
    def change(config: dict[str, Any]) -> None:
        unit = _unit(config, "kubelet.service")
        old = "--config=/etc/kubernetes/kubelet.conf"
        unit["contents"] = unit["contents"].replace(old, "--pod-manifest-path=/etc/kubernetes/manifests")

    seen = changed(lint_subject(Profile.OPENSHIFT), edit_config("bootstrap", change))
    assert complaint(BY_ID["BK-01"], seen) is None
    assert complaint(BY_ID["BK-02"], seen) is None
