"""Rules about Ignition configs: each holds for what is rendered, and fires after the change that it is there for."""

import copy
import json
from typing import Any, Final

import pytest
from tests.support.hardway_lint import Sample, Subject, changed, complaint
from tests.support.hardway_nodes import edit_config, lint_subject

from umbilical.assets.hardway import layout
from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.lint.ignition_rules import CONTENT, ENCAPSULATED, HOSTNAME, NODE_ANNOTATIONS, RULES
from umbilical.assets.hardway.nodes.network import KEYFILE

BY_ID: Final = {rule.id: rule for rule in RULES}


def _entry(config: dict[str, Any], path: str) -> dict[str, Any]:
    found: dict[str, Any] = next(entry for entry in config["storage"]["files"] if entry["path"] == path)
    return found


def _twice(path: str) -> Sample:
    """The blind append of the log that all this began with."""
    return edit_config(
        "master-0", lambda config: config["storage"]["files"].append(copy.deepcopy(_entry(config, path)))
    )


def _mode(node: str, path: str, mode: int) -> Sample:
    return edit_config(node, lambda config: _entry(config, path).update(mode=mode))


def _without(node: str, path: str) -> Sample:
    return edit_config(node, lambda config: config["storage"]["files"].remove(_entry(config, path)))


def _replaced(node: str, path: str, old: bytes, new: bytes) -> Sample:
    def sample(seen: Subject) -> None:
        def change(content: bytes) -> bytes:
            assert old in content
            return content.replace(old, new)

        seen.edit_ignition(node, path, change)

    return sample


def _json(node: str, path: str, change: Any) -> Sample:
    def edited(content: bytes) -> bytes:
        value = json.loads(content)
        change(value)
        return json.dumps(value).encode()

    return lambda seen: seen.edit_ignition(node, path, edited)


def _unit(node: str, which: str, **fields: Any) -> Sample:
    def change(config: dict[str, Any]) -> None:
        next(unit for unit in config["systemd"]["units"] if unit["name"] == which).update(fields)

    return edit_config(node, change)


def _encapsulated_first(config: dict[str, Any]) -> None:
    files = config["storage"]["files"]
    files.insert(0, files.pop())


def _file_at_unit(config: dict[str, Any]) -> None:
    config["storage"]["files"].append({**_entry(config, HOSTNAME), "path": "/etc/systemd/system/kubelet.service"})


SECRET: Final = f"{layout.NODE_SECRETS}/etcd-client.key"
SAMPLES: Final[dict[str, Sample]] = {
    "IGN-01": _twice(HOSTNAME),
    "IGN-01 of an unknown version": edit_config("bootstrap", lambda config: config["ignition"].update(version="2.2.0")),
    "IGN-01 with a file where a unit is": edit_config("bootstrap", _file_at_unit),
    "IGN-02": _mode("bootstrap", SECRET, 0o644),
    "IGN-02 with a keyfile readable": _mode("master-0", KEYFILE, 0o644),
    "IGN-02 with a kubeconfig readable": _mode("master-0", layout.BOOTSTRAP_KUBECONFIG, 0o640),
    "IGN-02 without a mode": edit_config("bootstrap", lambda config: _entry(config, SECRET).pop("mode")),
    "IGN-03": _replaced("master-0", KEYFILE, b"192.168.126.101/", b"192.168.126.102/"),
    "IGN-03 by DHCP": _replaced("master-0", KEYFILE, b"method=manual", b"method=auto"),
    "IGN-03 with another gateway": _replaced("master-0", KEYFILE, b"gateway=192.168.126.1", b"gateway=192.168.126.9"),
    "IGN-03 with a short name": _replaced("worker-1", HOSTNAME, b".ocp4.example.com", b""),
    "IGN-03 without a keyfile": _without("bootstrap", KEYFILE),
    "IGN-05": _without("bootstrap", SECRET),
    "IGN-05 without a static pod": _without("worker-0", f"{layout.NODE_MANIFESTS}/kube-proxy.yaml"),
    "IGN-05 without the egress selector": _without("bootstrap", f"{layout.NODE_CONFIGS}/egress-selector-config.yaml"),
    "IGN-05 without the kubelet's configuration": _without("master-0", layout.KUBELET_CONFIG),
    "IGN-05 without an authority": _without("worker-0", layout.KUBELET_CLIENT_CA),
    "IGN-05 without the script": _without("bootstrap", "/usr/local/bin/bootkube.sh"),
    "IGN-06": lambda seen: seen.write(
        "ignition/worker-0.ign", seen.assets["ignition/worker-0.ign"].content + b" " * (4 << 20)
    ),
    "IGN-07": _unit("worker-0", "kubelet.service", enabled=False),
    "IGN-07 masked": _unit("master-0", "kubelet.service", mask=True),
    "IGN-07 without bootkube": _unit("bootstrap", "bootkube.service", name="bootcube.service"),
    "IGN-04": _without("master-0", layout.KUBELET_CLIENT_CA),
    "IGN-04 with another authority": _replaced("master-0", layout.KUBELET_CLIENT_CA, b"MII", b"MIJ"),
    "IGN-04 without annotations": _without("worker-1", NODE_ANNOTATIONS),
    "IGN-04 of another config": _replaced("master-0", NODE_ANNOTATIONS, b"rendered-master-", b"rendered-worker-"),
    "IGN-04 with a state": _replaced("master-0", NODE_ANNOTATIONS, b"Done", b"Working"),
    "IGN-04 without the encapsulated one": _without("master-1", ENCAPSULATED),
    "IGN-04 with a wrong encapsulated one": _replaced("master-0", ENCAPSULATED, b"rendered-", b"unrendered-"),
    "IGN-04 with files encapsulated": _json(
        "master-0", ENCAPSULATED, lambda value: value["spec"]["config"].update(storage={})
    ),
    "IGN-04 with the encapsulated one early": edit_config("master-0", _encapsulated_first),
    "IGN-04 of the other role": _replaced("worker-0", CONTENT, b"rendered-worker-", b"rendered-master-"),
    "IGN-04 without an identity": _without("worker-0", layout.BOOTSTRAP_KUBECONFIG),
}
OF_ONE_PROFILE: Final[dict[str, tuple[Profile, Sample]]] = {
    "IGN-01 with the pull secret twice": (Profile.OPENSHIFT, _twice(layout.PULL_SECRET)),
    "IGN-02 with the pull secret readable": (Profile.OPENSHIFT, _mode("worker-0", layout.PULL_SECRET, 0o644)),
    "IGN-03 without a route": (
        Profile.KUBERNETES,
        _replaced("worker-0", KEYFILE, b"10.128.0.0/23,", b"10.128.0.0/24,"),
    ),
    "IGN-05 without a master's key": (
        Profile.KUBERNETES,
        _without("master-2", f"{layout.MASTER_SECRETS}/etcd-peer-master-2.key"),
    ),
}


def tree(profile: Profile) -> Subject:
    return lint_subject(profile)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_holds_for_what_is_rendered(rule: Any) -> None:
    based = lint_subject(Profile.OPENSHIFT, is_based=True)
    judged = [seen for seen in (*map(tree, Profile), based) if seen.cluster.profile in rule.profiles]
    assert [complaint(rule, seen) for seen in judged] == [None] * len(judged)


@pytest.mark.parametrize("name", list(SAMPLES))
def test_a_rule_fires(name: str) -> None:
    rule = BY_ID[name.split(maxsplit=1)[0]]
    for profile in rule.profiles:
        assert complaint(rule, changed(tree(profile), SAMPLES[name])), (name, profile)


@pytest.mark.parametrize("name", list(OF_ONE_PROFILE))
def test_a_rule_fires_for_what_one_profile_has(name: str) -> None:
    profile, sample = OF_ONE_PROFILE[name]
    assert complaint(BY_ID[name.split(maxsplit=1)[0]], changed(tree(profile), sample)), name


def test_every_rule_has_a_failing_sample() -> None:
    assert {name.split()[0] for name in SAMPLES} == set(BY_ID)


def test_what_cannot_be_read_is_a_fault_and_no_crash() -> None:
    seen = changed(tree(Profile.OPENSHIFT), lambda seen: seen.write("ignition/master-0.ign", b"{"))
    for rule in RULES:
        if rule.id != "IGN-06":
            assert "master-0.ign" in (complaint(rule, seen) or ""), rule.id


def test_a_missing_config_is_a_fault_of_every_rule() -> None:
    seen = changed(tree(Profile.OPENSHIFT), lambda seen: seen.remove("ignition/worker-0.ign"))
    assert [rule.id for rule in RULES if "worker-0.ign is missing" not in (complaint(rule, seen) or "")] == []
