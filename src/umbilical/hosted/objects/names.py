"""Names of objects, ports and directories of a hosted control plane: HyperShift's where it has one."""

from typing import Final

FRONTEND_PORT: Final = 8090
AGENT_PORT: Final = 8091
HEALTH_PORT: Final = 2041
"""Health and metrics of servers and agents."""
ADMIN_PORT: Final = 8093
OAUTH_HTTPS_PORT: Final = 8092
"""Port of the second sidecar in the pod that has two."""

HOSTED_NAMESPACE: Final = "kube-system"
"""Namespace of everything that runs in the hosted cluster."""
AGGREGATED_NAMESPACE: Final = "default"
"""Namespace of the Services without selectors for aggregated APIs in the hosted cluster."""

SERVER: Final = "konnectivity-server"
"""The container, the Service that agents dial, the Route, and the Secret of the frontend's certificate."""
SERVER_LOCAL: Final = "konnectivity-server-local"
"""The Service that clients dial."""
AGENT: Final = "konnectivity-agent"
"""The DaemonSet in the hosted cluster and its Secret; the Deployment in the control-plane namespace."""
KUBE_APISERVER: Final = "kube-apiserver"

SECRET_SERVER: Final = "konnectivity-server"
SECRET_CLUSTER: Final = "konnectivity-cluster"
SECRET_CLIENT: Final = "konnectivity-client"
SECRET_AGENT: Final = "konnectivity-agent"
SECRET_CONTROL_PLANE_AGENT: Final = "konnectivity-agent-control-plane"
"""Not in HyperShift: the control-plane agent has another identity than the node agents, and so its own key."""

CA_BUNDLE: Final = "konnectivity-ca-bundle"
"""The ConfigMap with all CAs, under the keys below."""
CA_KEY: Final = "ca.crt"
"""In the management cluster the CA for clients of the frontend; in the hosted cluster the CA for agents."""
CLUSTER_CA_KEY: Final = "cluster-ca.crt"
"""CA by which agents verify servers."""
CLIENT_CA_KEY: Final = "server-client-ca.crt"
"""CA by which the frontend verifies clients."""
AGENT_CA_KEY: Final = "cluster-client-ca.crt"
"""CA by which the agent listener verifies agents."""

EGRESS_CONFIG_MAP: Final = "kas-egress-selector-config"
EGRESS_KEY: Final = "config.yaml"
EGRESS_DIRECTORY: Final = "/etc/kubernetes/egress-selector"
CLIENT_CA_DIRECTORY: Final = "/etc/kubernetes/certs/konnectivity-ca"
CLIENT_PAIR_DIRECTORY: Final = "/etc/kubernetes/certs/konnectivity-client"
"""Mount of kube-apiserver's client certificate for the frontend."""
IDENTITIES_CONFIG_MAP: Final = "konnectivity-agent-identities"
IDENTITIES_KEY: Final = "identities"
IDENTITIES_DIRECTORY: Final = "/etc/konnectivity/identities"

SERVER_CA_DIRECTORY: Final = "/etc/konnectivity/ca"
SERVER_CLUSTER_DIRECTORY: Final = "/etc/konnectivity/cluster"
SERVER_SERVER_DIRECTORY: Final = "/etc/konnectivity/server"
AGENT_PAIR_DIRECTORY: Final = "/etc/konnectivity/agent"
PROXY_CA_DIRECTORY: Final = "/etc/konnectivity/proxy-ca"
PROXY_CLIENT_DIRECTORY: Final = "/etc/konnectivity/proxy-client"
"""Both are mounts of the sidecar proxies."""

PROXY_SECRET: Final = "konnectivity-data-plane-proxy"
"""The user's proxy, in both clusters, with keys HTTP_PROXY and so on; a Secret, as a URL may hold a password."""

MANAGEMENT_PROXY_SECRET: Final = "konnectivity-management-proxy"
"""The management cluster's own proxy, for sidecars that dial cloud APIs directly."""

CN_CLIENT: Final = "konnectivity-client"
CN_AGENT: Final = "konnectivity-agent"
CN_CONTROL_PLANE_AGENT: Final = "konnectivity-agent-control-plane"

AGGREGATED_LABEL: Final = "umbilical.dev/aggregated-api"
"""With the value `true`: the control-plane agent serves this Service of the control-plane namespace."""
CA_HASH_ANNOTATION: Final = "umbilical.dev/ca-sha256"
"""Hash of the CA certificate; HyperShift's `ca-hash` covers the key."""
PART_LABEL: Final = ("app.kubernetes.io/part-of", "umbilical-hosted")
"""On every rendered object, so that all can be listed and deleted together."""

COMPONENTS: Final = (
    "openshift-apiserver",
    "openshift-oauth-apiserver",
    "oauth-openshift",
    "ingress-operator",
    "cluster-network-operator",
    "ovnkube-control-plane",
    "olm-operator",
    "catalog-operator",
    "packageserver",
)
"""Deployments of the control-plane namespace that can get proxies as sidecars."""
TMP_VOLUME: Final = "konnectivity-tmp"
