"""Reading and validating the manifests of a hosted control plane."""

import json
from pathlib import Path
from typing import Any

import pytest

from umbilical.fault import HostedError
from umbilical.hosted.apply import read_manifests
from umbilical.hosted.network_policy import opens, selecting, selects


def item(kind: str, name: str, namespace: str = "clusters-a") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}}


def write(path: Path, *contents: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n---\n".join(json.dumps(content) for content in contents))
    return path


def test_objects_come_in_the_order_in_which_they_lean_on_each_other(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", item("ServiceMonitor", "m"), item("Deployment", "d"))
    write(tmp_path / "b.yml", item("Secret", "s"), item("Role", "r"))
    write(tmp_path / "c.json", item("Namespace", "n"))
    kinds = [document.kind for document in read_manifests(tmp_path)]
    assert kinds == ["Namespace", "Role", "Secret", "Deployment", "ServiceMonitor"]


def test_patches_and_other_directories_below_are_not_read(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", item("Secret", "s"))
    write(tmp_path / "patches" / "kube-apiserver.patch", item("Deployment", "kube-apiserver"))
    write(tmp_path / "patches" / "more.yaml", item("Deployment", "kube-apiserver"))
    assert [document.name for document in read_manifests(tmp_path)] == ["s"]


def test_lists_are_opened_and_what_is_kustomizes_own_or_empty_is_left_out(tmp_path: Path) -> None:
    everything = {"apiVersion": "v1", "kind": "List", "items": [item("Secret", "a"), item("Secret", "b")]}
    write(tmp_path / "list.yaml", everything, None)
    write(tmp_path / "kustomization.yaml", {"kind": "Kustomization", "resources": []})
    (tmp_path / "README.md").write_text("no manifest")
    assert [document.name for document in read_manifests(tmp_path)] == ["a", "b"]


def test_what_is_no_object_is_refused(tmp_path: Path) -> None:
    for content in ({"kind": "Secret"}, "a word", ["a list"]):
        path = write(tmp_path / "odd.yaml", content)
        with pytest.raises(HostedError) as fault:
            read_manifests(tmp_path)
        assert fault.value.code == "UMB565"
        assert str(path) in fault.value.what


def test_broken_yaml_is_named_by_line_and_not_quoted_and_an_empty_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HostedError, match="nothing to apply"):
        read_manifests(tmp_path)
    (tmp_path / "secret.yaml").write_text("kind: Secret\ndata:\n  key: 'a private key\n")
    with pytest.raises(HostedError) as fault:
        read_manifests(tmp_path)
    assert "line" in fault.value.why
    assert "private" not in str(fault.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "loop.yaml").symlink_to(tmp_path / "loop.yaml")
    write(tmp_path / "a.yaml", item("Secret", "s"))
    assert len(read_manifests(tmp_path)) == 1
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(HostedError):
        read_manifests(tmp_path)


LABELS = {"app": "kube-apiserver", "tier": "control-plane"}
PORT = {"port": 8091, "protocol": "TCP"}


def policy(*rules: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"spec": {"podSelector": {"matchLabels": {"app": "kube-apiserver"}}, "ingress": list(rules), **spec}}


def test_selectors_are_kubernetes_own() -> None:
    for selector, holds in (
        ({}, True),
        ({"matchLabels": {"app": "kube-apiserver"}}, True),
        ({"matchLabels": {"app": "other"}}, False),
        ({"matchLabels": {"app": "kube-apiserver", "more": "x"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["kube-apiserver", "x"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["x"]}]}, False),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]}, True),
        ({"matchExpressions": [{"key": "more", "operator": "NotIn", "values": ["x"]}]}, True),
        ({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "more", "operator": "Exists"}]}, False),
        ({"matchExpressions": [{"key": "more", "operator": "DoesNotExist"}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Odd"}]}, False),
        ("odd", False),
    ):
        assert selects(selector, LABELS) is holds


def test_only_policies_for_ingress_of_these_pods_close_them() -> None:
    closing = policy()
    others = [policy(podSelector={"matchLabels": {"app": "etcd"}}), policy(policyTypes=["Egress"])]
    assert selecting([*others, closing], LABELS) == [closing]
    assert selecting([{"spec": {}}], LABELS) == [{"spec": {}}]


def test_a_rule_opens_the_port_to_everybody_or_not() -> None:
    for rule, is_open in (
        ({"ports": [PORT]}, True),
        ({}, True),
        ({"ports": [{"port": 6443, "protocol": "TCP"}]}, False),
        ({"ports": [{"port": 8091, "protocol": "UDP"}]}, False),
        ({"ports": [{"port": 8091}]}, True),
        ({"ports": [{"protocol": "TCP"}]}, True),
        ({"ports": [{"port": 8000, "endPort": 8100}]}, True),
        ({"ports": [{"port": 8000, "endPort": 8090}]}, False),
        ({"ports": [{"port": "agents"}]}, True),
        ({"ports": [{"port": "clients"}]}, False),
        ({"ports": [PORT], "from": [{"podSelector": {}}]}, False),
        ({"ports": [PORT], "from": [{"namespaceSelector": {}}]}, False),
        ({"ports": [PORT], "from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}, False),
        ({"ports": [PORT], "from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}, True),
        ({"ports": [PORT], "from": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}}]}, False),
        ({"ports": [PORT], "from": [{"podSelector": {}}, {"ipBlock": {"cidr": "::/0"}}]}, True),
    ):
        assert opens(policy(rule), 8091, {"agents": 8091, "clients": 8090}) is is_open
    assert not opens(policy(), 8091, {})
