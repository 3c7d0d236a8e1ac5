"""The cluster DNS of the kubernetes profile: CoreDNS behind the Service address that kubelets give to pods."""

from typing import Final

from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.artifacts.manifests.objects import (
    access,
    cluster_role,
    cluster_role_binding,
    head,
    service_account,
)
from umbilical.manifests.objects import Object, config_map, manifest

NAME: Final = "coredns"
NAMESPACE: Final = "kube-system"
LABELS: Final = {"k8s-app": "kube-dns"}
IMAGE: Final = "coredns"
MAX_REPLICAS: Final = 2
_COREFILE: Final = """\
.:53 {{
    errors
    health {{
        lameduck 5s
    }}
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }}
    prometheus :9153
    forward . {upstream} {{
        max_concurrent 1000
    }}
    cache 30
    reload
    loadbalance
}}
"""


def coredns(inputs: Inputs) -> list[Object]:
    return [
        manifest("v1", "ServiceAccount", head(NAME, NAMESPACE)),
        cluster_role(
            "system:coredns",
            access("", ["endpoints", "services", "pods", "namespaces"], ["list", "watch"]),
            access("discovery.k8s.io", ["endpointslices"], ["list", "watch"]),
        ),
        cluster_role_binding("system:coredns", "system:coredns", service_account(NAMESPACE, NAME)),
        config_map(head(NAME, NAMESPACE), {"Corefile": _COREFILE.format(upstream=inputs.cluster.networks.dns)}),
        manifest("apps/v1", "Deployment", head(NAME, NAMESPACE, labels=LABELS), spec=_deployment(inputs)),
        manifest("v1", "Service", head("kube-dns", NAMESPACE, labels=LABELS), spec=_service(inputs)),
    ]


def _deployment(inputs: Inputs) -> Object:
    return {
        "replicas": min(MAX_REPLICAS, len(inputs.cluster.members)),
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
        "selector": {"matchLabels": LABELS},
        "template": {"metadata": {"labels": LABELS}, "spec": _pod(inputs)},
    }


def _pod(inputs: Inputs) -> Object:
    return {
        "priorityClassName": "system-cluster-critical",
        "serviceAccountName": NAME,
        # DNS is needed while there are only masters, and while they are not ready yet.
        "tolerations": [
            {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"},
            {"key": "node-role.kubernetes.io/master", "operator": "Exists"},
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
            {"key": "CriticalAddonsOnly", "operator": "Exists"},
        ],
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [_apart()]}},
        # It uses the node's DNS server; with ClusterFirst it would query itself.
        "dnsPolicy": "Default",
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(inputs.payload.images[IMAGE])],
        "volumes": [
            {"name": "config", "configMap": {"name": NAME, "items": [{"key": "Corefile", "path": "Corefile"}]}}
        ],
    }


def _apart() -> Object:
    term = {"labelSelector": {"matchLabels": LABELS}, "topologyKey": "kubernetes.io/hostname"}
    return {"weight": 100, "podAffinityTerm": term}


def _container(image: str) -> Object:
    return {
        "name": NAME,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        # No command: the program is at the root of upstream's image, which is not in PATH.
        "args": ["-conf", "/etc/coredns/Corefile"],
        "ports": [
            {"name": "dns", "containerPort": 53, "protocol": "UDP"},
            {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
            {"name": "metrics", "containerPort": 9153, "protocol": "TCP"},
        ],
        "livenessProbe": {
            "httpGet": {"path": "/health", "port": 8080},
            "initialDelaySeconds": 60,
            "timeoutSeconds": 5,
            "failureThreshold": 5,
        },
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 2, "timeoutSeconds": 5},
        "resources": {"requests": {"cpu": "50m", "memory": "50Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            # The program's file has this capability; without permission for it, the program does not start.
            "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
    }


def _service(inputs: Inputs) -> Object:
    return {
        "clusterIP": str(inputs.cluster.dns_ip),
        "selector": LABELS,
        "ports": [
            {"name": "dns", "port": 53, "targetPort": "dns", "protocol": "UDP"},
            {"name": "dns-tcp", "port": 53, "targetPort": "dns-tcp", "protocol": "TCP"},
            {"name": "metrics", "port": 9153, "targetPort": "metrics", "protocol": "TCP"},
        ],
    }
