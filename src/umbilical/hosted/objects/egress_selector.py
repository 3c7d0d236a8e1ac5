"""How kube-apiserver reaches the hosted cluster: HTTP CONNECT to the servers' Service, the control plane directly."""

from umbilical.hosted.objects import names
from umbilical.hosted.objects.objects import metadata
from umbilical.hosted.objects.spec import HostedSpec
from umbilical.manifests.objects import Object, config_map
from umbilical.manifests.tree import yaml_bytes


def egress_selector(spec: HostedSpec, url: str = "") -> Object:
    """`url` is another frontend than the Service: a static pod knows no names of Services."""
    tls = {
        "caBundle": f"{names.CLIENT_CA_DIRECTORY}/{names.CA_KEY}",
        "clientCert": f"{names.CLIENT_PAIR_DIRECTORY}/tls.crt",
        "clientKey": f"{names.CLIENT_PAIR_DIRECTORY}/tls.key",
    }
    tcp = {"url": url or spec.frontend_url, "tlsConfig": tls}
    direct = {"proxyProtocol": "Direct"}
    return {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [
            {"name": "controlplane", "connection": dict(direct)},
            {"name": "etcd", "connection": dict(direct)},
            # Not SOCKS and not gRPC: HyperShift tried the first, and SPDY's upgrades broke on it.
            {"name": "cluster", "connection": {"proxyProtocol": "HTTPConnect", "transport": {"tcp": tcp}}},
        ],
    }


def egress_config_map(spec: HostedSpec) -> Object:
    head = metadata(spec, names.EGRESS_CONFIG_MAP, spec.namespace)
    return config_map(head, {names.EGRESS_KEY: yaml_bytes(egress_selector(spec)).decode()})
