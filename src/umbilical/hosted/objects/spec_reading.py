"""Reads a hosted control plane's spec from YAML: unknown keys are errors with the nearest name, and all errors are
reported together. Also the example spec, which explains every key; the tests read it too.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from umbilical.fault import RenderError
from umbilical.hosted.objects import names
from umbilical.hosted.objects.spec import (
    HTTPS_PORT,
    Agents,
    AggregatedApi,
    ApiGroup,
    DataPlaneProxy,
    HostedImages,
    HostedNetworks,
    HostedSpec,
    KubeApiserver,
    Leases,
    ManagementProxy,
    Monitoring,
    Pki,
    Publishing,
    ServerCount,
    ServerProgram,
    Strategy,
    TlsProfile,
    Workload,
    problems,
)
from umbilical.hosted.pki.table import Signers
from umbilical.manifests.objects import DEFAULT_IMAGE, IMAGE, LABEL
from umbilical.manifests.sections import DocumentError, YamlSection, read_document
from umbilical.pki.profiles import KeyType

API_VERSION: Final = "umbilical.dev/v1alpha1"
KIND: Final = "HostedControlPlane"
_PORTS: Final = range(1, 65536)
_DEFAULT_PORTS: Final = {Strategy.ROUTE: HTTPS_PORT, Strategy.LOAD_BALANCER: names.AGENT_PORT}
_NAME: Final = rf"({LABEL.pattern}\.)*{LABEL.pattern}"
_HOST: Final = rf"{_NAME}|[0-9a-f:]*:[0-9a-f:.]*"
_URL: Final = r"https?://[^\s/]+/?"
_URL_HINT: Final = "must be a URL like http://user:password@proxy.example.com:3128"
_PEM: Final = r"\s*(-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----\s*)+"
_LABEL_HINT: Final = "must be a DNS label: a-z, 0-9 and hyphens, at most 63 characters"
_HOST_HINT: Final = "must be a lower-case host name or an address, without a port"
_IMAGE_HINT: Final = "must be an image reference: letters, digits and . _ : / @ -"
# At most ten years.
_DAYS: Final = range(1, 3651)

Part = TypeVar("Part")


def read_spec(content: bytes) -> HostedSpec:
    """Read a spec. Raises RenderError, which lists all errors."""
    try:
        document = read_document(content)
    except DocumentError as error:
        raise _refused([str(error)]) from None
    found: list[str] = []
    spec = _read(_spec, YamlSection(document, "", found))
    # Contradictions are checked only if every value is valid: else the same errors would appear twice.
    found = found or list(problems(spec))
    if found:
        raise _refused(found)
    return spec


def _spec(section: YamlSection) -> HostedSpec:
    _check_kind(section)
    replicas = section.number("replicas", 3, range(1, 10))
    server = section.choice("server", ServerProgram.UMBILICAL)
    return HostedSpec(
        name=section.text("name", rule=LABEL.pattern, hint=_LABEL_HINT),
        namespace=section.text("namespace", rule=LABEL.pattern, hint=_LABEL_HINT),
        replicas=replicas,
        server=server,
        images=_read(lambda one: _images(one, server), section.section("images")),
        publishing=_read(_publishing, section.section("publish")),
        networks=_read(_networks, section.section("networks")),
        server_count=section.choice("serverCount", ServerCount.REPLICAS),
        leases=_read(_leases, section.section("leases")),
        agents=_read(lambda one: _agents(one, replicas), section.section("agents")),
        kube_apiserver=_read(_kube_apiserver, section.section("kubeApiserver")),
        aggregated_apis=tuple(_read(_aggregated_api, one) for one in section.sections("aggregatedApis")),
        aggregated_authority=section.secret("aggregatedAuthority", _PEM, "must be PEM certificates"),
        tls_profile=section.choice("tlsProfile", TlsProfile.INTERMEDIATE),
        pki=_read(_pki, section.section("pki")),
        proxy=_read(_proxy, section.section("proxy")),
        management_proxy=_read(_management_proxy, section.section("managementProxy")),
        monitoring=_read(_monitoring, section.section("monitoring")),
        components=section.texts(
            "components", rule="|".join(names.COMPONENTS), hint=f"must be one of: {', '.join(names.COMPONENTS)}"
        ),
        cluster_domain=section.text("clusterDomain", "cluster.local", rule=_NAME, hint="must be a domain"),
        priority_class=section.text("priorityClass", HostedSpec.priority_class, rule=_NAME, hint=_LABEL_HINT),
    )


def _check_kind(section: YamlSection) -> None:
    for key, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if section.take(key) != wanted:
            section.problems.append(f"{key} must be {wanted}")


def _read(read: Callable[[YamlSection], Part], section: YamlSection) -> Part:
    """Read a part, then report its unknown keys."""
    part = read(section)
    section.finish()
    return part


def _images(section: YamlSection, program: ServerProgram) -> HostedImages:
    if program is ServerProgram.UPSTREAM:
        server, agent = (_upstream_image(section, key) for key in ("server", "agent"))
        return HostedImages(server, agent, _image(section, "proxy", DEFAULT_IMAGE))
    server = _image(section, "server", DEFAULT_IMAGE)
    return HostedImages(server, _image(section, "agent", server), _image(section, "proxy", server))


def _upstream_image(section: YamlSection, key: str) -> str:
    if not section.has(key):
        why = f"the default image, {DEFAULT_IMAGE}, contains umbilical"
        section.problems.append(f"{section.path}.{key} is required with server upstream: {why}")
    return _image(section, key, "")


def _image(section: YamlSection, key: str, default: str) -> str:
    return section.text(key, default, rule=IMAGE.pattern, hint=_IMAGE_HINT)


def _publishing(section: YamlSection) -> Publishing:
    strategy = section.required_choice("strategy", Strategy)
    return Publishing(
        strategy,
        section.text("host", rule=_HOST, hint=_HOST_HINT),
        section.number("port", _DEFAULT_PORTS.get(strategy), _PORTS),
        section.labels("labels", {}),
    )


def _networks(section: YamlSection) -> HostedNetworks:
    return HostedNetworks(section.networks("cluster"), section.networks("service"), section.networks("machine"))


def _leases(section: YamlSection) -> Leases:
    return Leases(
        section.text("kubeconfigSecret", "", rule=_NAME, hint="must be the name of a Secret"),
        section.text("user", Leases.user),
    )


def _agents(section: YamlSection, replicas: int) -> Agents:
    return Agents(
        section.switch("hostNetwork", True),
        section.text("dnsPolicy", "Default", rule="Default|ClusterFirst", hint="must be Default or ClusterFirst"),
        # As in HyperShift: one if everything has one replica, else two.
        section.number("controlPlaneReplicas", min(replicas, 2), range(1, 10)),
        section.number("controlPlaneUser", 0, range(1 << 31)),
    )


def _kube_apiserver(section: YamlSection) -> KubeApiserver:
    return KubeApiserver(
        name=section.text("name", names.KUBE_APISERVER, rule=_NAME, hint=_LABEL_HINT),
        workload=section.choice("workload", Workload.DEPLOYMENT),
        manifest=section.text("manifest", ""),
        container=section.text("container", names.KUBE_APISERVER, rule=LABEL.pattern, hint=_LABEL_HINT),
        labels=section.labels("labels", {"app": names.KUBE_APISERVER}),
        ports=section.ports("ports", (6443,)),
        has_egress_flag=section.switch("egressFlag", True),
    )


def _aggregated_api(section: YamlSection) -> AggregatedApi:
    return AggregatedApi(
        section.text("service", rule=LABEL.pattern, hint=_LABEL_HINT),
        section.addresses("addresses"),
        tuple(_read(_api_group, one) for one in section.sections("groups")),
    )


def _api_group(section: YamlSection) -> ApiGroup:
    return ApiGroup(
        section.text("group", rule=_NAME, hint="must be the name of an API group"),
        section.text("version", "v1", rule=LABEL.pattern, hint=_LABEL_HINT),
        section.number("groupPriority", 9900, range(1, 20001)),
        section.number("versionPriority", 15, range(1, 1001)),
    )


def _pki(section: YamlSection) -> Pki:
    return Pki(
        section.choice("signers", Signers.SEPARATE),
        section.choice("keyType", KeyType.RSA_2048),
        section.number("authorityDays", 3650, _DAYS),
        section.number("certificateDays", 365, _DAYS),
        section.number("renewPercent", 33, range(1, 91)),
        section.switch("signersInCluster", False),
    )


def _proxy(section: YamlSection) -> DataPlaneProxy:
    return DataPlaneProxy(
        section.secret("http", _URL, _URL_HINT),
        section.secret("https", _URL, _URL_HINT),
        _no_proxy(section),
        section.text("trustedCa", "", rule=_NAME, hint="must be the name of a ConfigMap"),
    )


def _management_proxy(section: YamlSection) -> ManagementProxy:
    return ManagementProxy(section.secret("https", _URL, _URL_HINT), _no_proxy(section))


def _no_proxy(section: YamlSection) -> tuple[str, ...]:
    return section.texts("noProxy", rule=r"[^\s,]+", hint="must be a name, an address or a network")


def _monitoring(section: YamlSection) -> Monitoring:
    return Monitoring(
        section.switch("enabled", True),
        section.texts("namespaces", Monitoring.namespaces, rule=LABEL.pattern, hint=_LABEL_HINT),
    )


def _refused(found: list[str]) -> RenderError:
    what = "the spec of the hosted control plane is invalid"
    if len(found) > 1:
        what = f"{what}: {len(found)} errors"
    return RenderError("UMB550", what, "; ".join(found), "compare it with: umbilical hosted render --example")


EXAMPLE: Final = f"""\
apiVersion: umbilical.dev/v1alpha1
kind: HostedControlPlane

# The hosted cluster, and the namespace of its control plane in the management cluster.
name: guest
namespace: clusters-guest
# Replicas of kube-apiserver. A tunnel server runs beside each; agents connect to that many.
replicas: 3

# Which programs the servers' and agents' images contain: umbilical or upstream. Upstream's have no flags that bind
# identities.
server: umbilical
# The default is our image, which no registry has. `make image` writes it as an archive: load it on every node of both
# clusters, or push it to your registry and name it here (docs/hosted.md). Required with server upstream: server, agent.
images:
  server: {DEFAULT_IMAGE}
  # Default for both: the server's image.
  # agent: {DEFAULT_IMAGE}
  # Runs in the sidecars of `components`. Default with server upstream, whose image has no proxies: our image.
  # proxy: {DEFAULT_IMAGE}

# How agents on nodes reach the servers. The host is part of the certificate, so it must be known now.
#   route         host is a name; port is 443
#   nodeport      host is a node's name or address; port is 30000 to 32767
#   loadbalancer  host is the load balancer's name or address; port is 8091
publish:
  strategy: route
  host: konnectivity-guest.apps.example.com
  # port: 443
  # Labels of the Route, for a router that selects Routes by label (HyperShift has one for private clusters).
  # labels:
  #   hypershift.openshift.io/hosted-control-plane: clusters-guest
  #   hypershift.openshift.io/internal-route: "true"

# Networks of the hosted cluster; traffic to them uses no proxy.
networks:
  cluster: [10.132.0.0/14]
  service: [172.31.0.0/16]
  machine: [192.168.10.0/24]

agents:
  # With the host's network agents work before there is a pod network. false needs a pod network without agents.
  hostNetwork: true
  # The node's resolver (Default), or the hosted cluster's (ClusterFirst).
  dnsPolicy: Default
  # Number of agents beside the control plane, for aggregated APIs.
  controlPlaneReplicas: 2
  # User ID of those agents; 0: assigned by the management cluster (by OpenShift's SCCs).
  controlPlaneUser: 0

kubeApiserver:
  # File with a Deployment, or a static pod (workload: Pod), relative to this file. Without it a patch is written.
  # manifest: kube-apiserver.yaml
  workload: Deployment
  name: kube-apiserver
  # The container that gets the egress selector.
  container: kube-apiserver
  # Pod labels that Services and NetworkPolicies select.
  labels:
    app: kube-apiserver
  # Ports that stay open to everybody; NetworkPolicies close all others.
  ports: [6443]
  # false if kube-apiserver is configured by a file: add egress-selector-config-file to it yourself.
  egressFlag: true

# Services of the control-plane namespace that serve API groups of the hosted cluster. Give their ClusterIPs here, or
# render with --management-kubeconfig, which looks them up and also finds Services with the label
# umbilical.dev/aggregated-api=true. With groups, aggregatedAuthority is required: the PEM of the CA of their serving
# certificates.
aggregatedApis:
  - service: openshift-apiserver
    addresses: [172.30.12.7]
#    groups:
#      - group: apps.openshift.io
#        version: v1
#        groupPriority: 9900
#        versionPriority: 15
# aggregatedAuthority: |
#   -----BEGIN CERTIFICATE-----
#   ...

# How agents learn the number of servers: from the number of replicas, or from leases in the hosted cluster, which are
# correct during a rollout too. Leases need a kubeconfig for the servers.
serverCount: replicas
# leases:
#   kubeconfigSecret: konnectivity-server-kubeconfig
#   user: system:konnectivity-server

# intermediate: TLS 1.2 with six cipher suites, and TLS 1.3; modern: TLS 1.3 only.
tlsProfile: intermediate

pki:
  # separate: the frontend refuses certificates of agents; single: one signer for all.
  signers: separate
  # rsa-2048 or ecdsa-p256.
  keyType: rsa-2048
  authorityDays: 3650
  certificateDays: 365
  # A certificate is renewed when less than this percentage of its lifetime is left.
  renewPercent: 33
  # true: the signers' keys are also stored as Secrets.
  signersInCluster: false

# The user's proxy for traffic that leaves the data plane: used by sidecars, and by agents to reach the servers.
# proxy:
#   http: http://user:password@proxy.example.com:3128
#   https: http://user:password@proxy.example.com:3128
#   noProxy: [.example.com]
#   trustedCa: user-ca-bundle

# The management cluster's own proxy: used by sidecars that dial cloud APIs directly, never for the hosted cluster. The
# patch of kube-apiserver then sets NO_PROXY to this list and the networks above.
# managementProxy:
#   https: http://user:password@proxy.mgmt.example.com:3128
#   noProxy: [.mgmt.example.com]

monitoring:
  enabled: true
  # Namespaces of the Prometheus servers that read the metrics.
  namespaces: [openshift-monitoring, openshift-user-workload-monitoring]

# Deployments of the control-plane namespace that get proxies as sidecars, and what they reach through them.
components:
  # Image registries, by the user's proxy; webhooks in the data plane.
  - openshift-apiserver
  # Admission webhooks in the data plane.
  - openshift-oauth-apiserver
  # Identity providers: HTTP by the user's proxy, LDAP without it.
  - oauth-openshift
  # Canary routes in the data plane, by the user's proxy; DNS records at the cloud.
  - ingress-operator
  # The user's proxy, to check it; the agent resolves its name.
  - cluster-network-operator
  # OVN-Kubernetes' interconnect. The network operator owns this Deployment and reverts a patch: change its manifests.
  - ovnkube-control-plane
  # Catalogs in the data plane, by gRPC.
  - olm-operator
  - catalog-operator
  - packageserver

# Cluster domain of the management cluster.
clusterDomain: cluster.local
# PriorityClass of the control-plane agent: the same as kube-apiserver's, because API calls depend on both.
priorityClass: hypershift-api-critical
"""
