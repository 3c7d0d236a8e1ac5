"""Rules about nodes and their Ignition configs: the faults that each notices."""

import copy
import json
from typing import Any, Final

from tests.support.hardway_everything import everything
from tests.support.hardway_lint import Sample, Subject, changed, complaint
from tests.support.hardway_nodes import edit_config

from umbilical.bootstrap.names import BOOTKUBE
from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.nodes.machine import KEYFILE, PAUSE_DROP_IN
from umbilical.hardway.config.cluster import ClusterProfile
from umbilical.hardway.lint.ignition_rules import CONTENT, ENCAPSULATED, HOSTNAME, NODE_ANNOTATIONS
from umbilical.hardway.lint.ignition_rules import RULES as IGNITION_RULES
from umbilical.hardway.lint.node_rules import API_SERVER_ENV, RULES

SECRET: Final = f"{layout.NODE_SECRETS}/etcd-client.key"


def _unit(config: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(unit for unit in config["systemd"]["units"] if unit["name"] == name)
    return found


def _with_kubelet_flag(flag: str) -> Sample:
    def change(config: dict[str, Any]) -> None:
        unit = _unit(config, "kubelet.service")
        unit["contents"] = unit["contents"].replace("--v=2", f"{flag} \\\n    --v=2")

    return edit_config("bootstrap", change)


def _replaced(node: str, path: str, old: bytes, new: bytes) -> Sample:
    def sample(seen: Subject) -> None:
        def change(content: bytes) -> bytes:
            assert old in content
            return content.replace(old, new)

        seen.edit_ignition(node, path, change)

    return sample


def _bootkube_below_opt(config: dict[str, Any]) -> None:
    unit = _unit(config, "bootkube.service")
    unit["contents"] = unit["contents"].replace(BOOTKUBE, "/opt/openshift/bootkube.sh")
    _entry(config, BOOTKUBE)["path"] = "/opt/openshift/bootkube.sh"


def _script_by_bash(config: dict[str, Any]) -> None:
    _bootkube_below_opt(config)
    unit = _unit(config, "bootkube.service")
    unit["contents"] = unit["contents"].replace("ExecStart=", "ExecStart=/bin/bash ")


def _entry(config: dict[str, Any], path: str) -> dict[str, Any]:
    found: dict[str, Any] = next(entry for entry in config["storage"]["files"] if entry["path"] == path)
    return found


def _twice(path: str) -> Sample:
    """Append a file without removing the existing entry of the same path."""
    return edit_config(
        "master-0", lambda config: config["storage"]["files"].append(copy.deepcopy(_entry(config, path)))
    )


def _mode(node: str, path: str, mode: int) -> Sample:
    return edit_config(node, lambda config: _entry(config, path).update(mode=mode))


def _without(node: str, path: str) -> Sample:
    return edit_config(node, lambda config: config["storage"]["files"].remove(_entry(config, path)))


def _json(node: str, path: str, change: Any) -> Sample:
    def edited(content: bytes) -> bytes:
        value = json.loads(content)
        change(value)
        return json.dumps(value).encode()

    return lambda seen: seen.edit_ignition(node, path, edited)


def _changed_unit(node: str, which: str, **fields: Any) -> Sample:
    def change(config: dict[str, Any]) -> None:
        _unit(config, which).update(fields)

    return edit_config(node, change)


def _encapsulated_first(config: dict[str, Any]) -> None:
    files = config["storage"]["files"]
    files.insert(0, files.pop())


def _file_at_unit(config: dict[str, Any]) -> None:
    config["storage"]["files"].append({**_entry(config, HOSTNAME), "path": "/etc/systemd/system/kubelet.service"})


OF_ONE_PROFILE: Final[dict[str, tuple[ClusterProfile, Sample]]] = {
    "IGN-01 with the pull secret twice": (ClusterProfile.OPENSHIFT, _twice(layout.PULL_SECRET)),
    "IGN-02 with the pull secret readable": (ClusterProfile.OPENSHIFT, _mode("worker-0", layout.PULL_SECRET, 0o644)),
    "IGN-03 without a route": (
        ClusterProfile.KUBERNETES,
        _replaced("worker-0", KEYFILE, b"10.128.0.0/23,", b"10.128.0.0/24,"),
    ),
    "IGN-05 without a master's key": (
        ClusterProfile.KUBERNETES,
        _without("master-2", f"{layout.MASTER_SECRETS}/etcd-peer-master-2.key"),
    ),
}


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
        "bootstrap", BOOTKUBE, b"set -euo", b"# registry.k8s.io/pause:3.9\nset -euo"
    ),
    "CRIO-02": _replaced("bootstrap", PAUSE_DROP_IN, b"/usr/bin/pod", b"/pause"),
    "CRIO-02 without credentials": _replaced("bootstrap", PAUSE_DROP_IN, b"pause_image_auth_file", b"auth_file"),
    "SE-01": edit_config("bootstrap", _bootkube_below_opt),
    "SE-01 by way of bash": edit_config("bootstrap", _script_by_bash),
    "SE-01 not executable": _mode("bootstrap", BOOTKUBE, 0o644),
    "AU-01": _without("worker-1", API_SERVER_ENV),
    "AU-01 with another host": _replaced("master-0", API_SERVER_ENV, b"api-int.", b"api."),
    "AU-01 with another port": _replaced("master-0", API_SERVER_ENV, b"'6443'", b"'443'"),
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
    "IGN-05 without the script": _without("bootstrap", BOOTKUBE),
    "IGN-06": lambda seen: seen.write(
        "ignition/worker-0.ign", seen.assets["ignition/worker-0.ign"].content + b" " * (4 << 20)
    ),
    "IGN-07": _changed_unit("worker-0", "kubelet.service", enabled=False),
    "IGN-07 masked": _changed_unit("master-0", "kubelet.service", mask=True),
    "IGN-07 without bootkube": _changed_unit("bootstrap", "bootkube.service", name="bootcube.service"),
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


def test_what_cannot_be_read_is_a_fault_and_no_crash() -> None:
    seen = changed(everything(ClusterProfile.OPENSHIFT), lambda seen: seen.write("ignition/bootstrap.ign", b"{", 0o600))
    assert [rule.id for rule in RULES if "bootstrap.ign" not in (complaint(rule.id, seen) or "")] == ["AU-01"]
    seen = changed(everything(ClusterProfile.OPENSHIFT), lambda seen: seen.write("ignition/master-0.ign", b"{"))
    assert [rule.id for rule in IGNITION_RULES if "master-0.ign" not in (complaint(rule.id, seen) or "")] == ["IGN-06"]


def test_without_a_list_of_images_nobody_knows_the_pause_image() -> None:
    seen = changed(everything(ClusterProfile.OPENSHIFT), lambda seen: seen.remove("machine-config/image-references"))
    assert "image-references" in (complaint("CRIO-01", seen) or "")


def test_a_kubelet_without_a_file_has_the_old_defaults() -> None:
    def change(config: dict[str, Any]) -> None:
        unit = _unit(config, "kubelet.service")
        old = "--config=/etc/kubernetes/kubelet.conf"
        unit["contents"] = unit["contents"].replace(old, "--pod-manifest-path=/etc/kubernetes/manifests")

    seen = changed(everything(ClusterProfile.OPENSHIFT), edit_config("bootstrap", change))
    assert complaint("BK-01", seen) is None
    assert complaint("BK-02", seen) is None


def test_a_rule_fires_for_what_one_profile_has() -> None:
    silent = [
        key
        for key, (profile, sample) in OF_ONE_PROFILE.items()
        if not complaint(key, changed(everything(profile), sample))
    ]
    assert silent == []


def test_a_missing_config_is_a_fault_of_every_rule() -> None:
    seen = changed(everything(ClusterProfile.OPENSHIFT), lambda seen: seen.remove("ignition/worker-0.ign"))
    assert [
        rule.id for rule in IGNITION_RULES if "worker-0.ign is missing" not in (complaint(rule.id, seen) or "")
    ] == []
