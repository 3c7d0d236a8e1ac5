"""What the made-up release is called, and its images."""

from typing import Final

VERSION: Final = "4.18.0"
DIGEST: Final = "sha256:" + "5b" * 32
RELEASE_IMAGE: Final = f"quay.io/openshift-release-dev/ocp-release@{DIGEST}"
TAGS: Final = (
    *("etcd", "hyperkube", "kube-proxy", "pod", "machine-config-operator", "cluster-config-api", "cluster-bootstrap"),
    *("cli", "cluster-etcd-operator", "cluster-kube-apiserver-operator", "cluster-kube-controller-manager-operator"),
    *("cluster-kube-scheduler-operator", "cluster-config-operator", "cluster-authentication-operator"),
    *("cluster-ingress-operator", "cluster-network-operator", "cluster-version-operator", "cluster-policy-controller"),
    *("baremetal-runtimecfg", "keepalived-ipfailover", "coredns", "haproxy-router", "kube-rbac-proxy", "oauth-proxy"),
    *("rhel-coreos", "rhel-coreos-extensions", "apiserver-network-proxy"),
)


def images() -> dict[str, str]:
    return {
        tag: f"quay.io/openshift-release-dev/ocp-v4.0-art-dev@sha256:{index:064x}" for index, tag in enumerate(TAGS)
    }
