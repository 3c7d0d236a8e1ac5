"""What objects, ports and places of a hosted control plane are called: with HyperShift's names where it has any."""

from typing import Final

FRONTEND_PORT: Final = 8090
AGENT_PORT: Final = 8091
HEALTH_PORT: Final = 2041
"""Health and metrics, of servers and agents alike."""
ADMIN_PORT: Final = 8093
OAUTH_HTTPS_PORT: Final = 8092
"""Of the second sidecar in the one pod that has two."""

HOSTED_NAMESPACE: Final = "kube-system"
"""Of everything that runs in the hosted cluster."""
AGGREGATED_NAMESPACE: Final = "default"
"""Of the Services without selectors that stand for aggregated APIs in the hosted cluster."""

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
"""Ours: the agent beside the control plane is somebody else than the agents on the nodes, so it has its own key."""

CA_BUNDLE: Final = "konnectivity-ca-bundle"
"""The ConfigMap with every authority that somebody has to trust, under these keys."""
CA_KEY: Final = "ca.crt"
"""In the management cluster what clients trust of the frontend; in the hosted cluster what agents trust of servers."""
CLUSTER_CA_KEY: Final = "cluster-ca.crt"
"""What agents trust of servers."""
CLIENT_CA_KEY: Final = "server-client-ca.crt"
"""What the frontend trusts of clients."""
AGENT_CA_KEY: Final = "cluster-client-ca.crt"
"""What the listener for agents trusts of agents."""

EGRESS_CONFIG_MAP: Final = "kas-egress-selector-config"
EGRESS_KEY: Final = "config.yaml"
EGRESS_DIRECTORY: Final = "/etc/kubernetes/egress-selector"
CLIENT_CA_DIRECTORY: Final = "/etc/kubernetes/certs/konnectivity-ca"
CLIENT_PAIR_DIRECTORY: Final = "/etc/kubernetes/certs/konnectivity-client"
"""Where kube-apiserver sees its own certificate for the frontend."""
IDENTITIES_CONFIG_MAP: Final = "konnectivity-agent-identities"
IDENTITIES_KEY: Final = "identities"
IDENTITIES_DIRECTORY: Final = "/etc/konnectivity/identities"

SERVER_CA_DIRECTORY: Final = "/etc/konnectivity/ca"
SERVER_CLUSTER_DIRECTORY: Final = "/etc/konnectivity/cluster"
SERVER_SERVER_DIRECTORY: Final = "/etc/konnectivity/server"
AGENT_PAIR_DIRECTORY: Final = "/etc/konnectivity/agent"
PROXY_CA_DIRECTORY: Final = "/etc/konnectivity/proxy-ca"
PROXY_CLIENT_DIRECTORY: Final = "/etc/konnectivity/proxy-client"
"""Both in the sidecar proxies."""

PROXY_SECRET: Final = "konnectivity-data-plane-proxy"
"""The user's proxy, in both clusters, under the names of the usual variables: a URL may hold a password."""

MANAGEMENT_PROXY_SECRET: Final = "konnectivity-management-proxy"
"""The management cluster's own proxy, for sidecars that dial clouds' APIs by themselves."""

CN_CLIENT: Final = "konnectivity-client"
CN_AGENT: Final = "konnectivity-agent"
CN_CONTROL_PLANE_AGENT: Final = "konnectivity-agent-control-plane"

AGGREGATED_LABEL: Final = "umbilical.dev/aggregated-api"
"""A Service of the control-plane namespace with it (value `true`) is reached through the control-plane agent."""
CA_HASH_ANNOTATION: Final = "umbilical.dev/ca-sha256"
"""Of the authority's certificate, and never of its key as HyperShift's `ca-hash` is."""
PART_LABEL: Final = ("app.kubernetes.io/part-of", "umbilical-hosted")
"""On every object that is rendered, so that they are found and removed together."""

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
"""Which Deployments of the control-plane namespace can get proxies as sidecars."""
TMP_VOLUME: Final = "konnectivity-tmp"
