"""How kube-apiserver reaches the cluster: through the server's socket; the control plane and etcd as ever."""

from typing import Any

from umbilical.bootstrap.spec import TunnelSpec


def egress_selector(spec: TunnelSpec) -> dict[str, Any]:
    tunnel = {
        "proxyProtocol": spec.mode.proxy_protocol,
        "transport": {"uds": {"udsName": spec.socket_in_kube_apiserver}},
    }
    return {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [
            {"name": "cluster", "connection": tunnel},
            # Not left out: what is not named is Direct today, and here it is written that this is meant.
            {"name": "controlplane", "connection": {"proxyProtocol": "Direct"}},
            {"name": "etcd", "connection": {"proxyProtocol": "Direct"}},
        ],
    }
