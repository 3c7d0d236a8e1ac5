"""The kubelet's configuration: what must differ between a node with an API and one without."""

from typing import Any

import yaml

from umbilical.lab.kubelet import kubelet_config


def read(*, is_registered: bool) -> dict[str, Any]:
    document = yaml.safe_load(kubelet_config.configuration("umbilical-lab/node", is_registered=is_registered))
    assert isinstance(document, dict)
    return document


def test_both_watch_the_manifests_and_use_the_nodes_own_group_and_containerd() -> None:
    for is_registered in (True, False):
        document = read(is_registered=is_registered)
        assert document["staticPodPath"] == "/etc/kubernetes/manifests"
        assert document["cgroupRoot"] == "/umbilical-lab/node"
        assert document["containerRuntimeEndpoint"] == "unix:///run/containerd/containerd.sock"
        assert document["authentication"]["anonymous"] == {"enabled": False}


def test_without_an_api_nobody_is_asked() -> None:
    document = read(is_registered=False)
    assert document["authentication"]["webhook"] == {"enabled": False}
    assert document["authorization"] == {"mode": "AlwaysAllow"}
    assert "tlsCertFile" not in document


def test_with_an_api_it_is_asked_who_may_do_what() -> None:
    document = read(is_registered=True)
    assert document["authentication"]["webhook"] == {"enabled": True}
    assert document["authentication"]["x509"] == {"clientCAFile": "/etc/kubernetes/pki/ca.crt"}
    assert document["authorization"] == {"mode": "Webhook"}
    assert document["tlsCertFile"] == "/etc/kubernetes/pki/kubelet.crt"


def test_a_kubeconfig_is_a_flag_of_registered_nodes_alone() -> None:
    alone = kubelet_config.command("bootstrap", ["10.91.0.10"], None)
    joined = kubelet_config.command("master-0", ["10.91.0.11", "fd91::11"], "/etc/kubernetes/kubelet.kubeconfig")
    assert not any(flag.startswith("--kubeconfig") for flag in alone)
    assert "--kubeconfig=/etc/kubernetes/kubelet.kubeconfig" in joined
    assert "--node-ip=10.91.0.11,fd91::11" in joined
    assert "--hostname-override=master-0" in joined
