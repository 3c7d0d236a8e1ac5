"""The kubelet's configuration: what must differ between a node with an API and one without."""

from typing import Any

import pytest
import yaml

from umbilical.lab.kubelet import kubelet_config


def read(*, is_registered: bool) -> dict[str, Any]:
    content = kubelet_config.configuration("umbilical-lab/node", ["10.91.0.11"], is_registered=is_registered)
    document = yaml.safe_load(content)
    assert isinstance(document, dict)
    return document


@pytest.mark.parametrize(
    ("addresses", "everywhere"),
    [(["10.91.0.11"], "0.0.0.0"), (["fd91::11"], "::"), (["10.91.0.11", "fd91::11"], "::")],
)
def test_it_listens_on_every_family_that_the_node_has(addresses: list[str], everywhere: str) -> None:
    content = kubelet_config.configuration("umbilical-lab/node", addresses, is_registered=True)
    assert yaml.safe_load(content)["address"] == everywhere


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


def test_a_machines_drop_in_says_what_is_the_machines_and_leaves_the_rest_to_the_node() -> None:
    document = yaml.safe_load(kubelet_config.machine_drop_in("umbilical-lab/node"))
    assert (document["kind"], document["cgroupRoot"]) == ("KubeletConfiguration", "/umbilical-lab/node")
    assert document["cgroupDriver"] == "cgroupfs"
    # Merged into the defaults, an empty table would leave them as they are.
    assert set(document["evictionHard"].values()) == {"0%"}
    assert not {"staticPodPath", "authentication", "authorization", "clusterDNS"} & set(document)


def test_a_kubeconfig_is_a_flag_of_registered_nodes_alone() -> None:
    alone = kubelet_config.command("bootstrap", ["10.91.0.10"], None)
    joined = kubelet_config.command("master-0", ["10.91.0.11", "fd91::11"], "/etc/kubernetes/kubelet.kubeconfig")
    assert not any(flag.startswith("--kubeconfig") for flag in alone)
    assert "--kubeconfig=/etc/kubernetes/kubelet.kubeconfig" in joined
    assert "--node-ip=10.91.0.11,fd91::11" in joined
    assert "--hostname-override=master-0" in joined
