"""A spec to begin with, every key explained. The tests read it as any other."""

from typing import Final

EXAMPLE: Final = """\
apiVersion: umbilical.dev/v1alpha1
kind: HostedControlPlane

# The hosted cluster, and the namespace of its control plane in the management cluster.
name: guest
namespace: clusters-guest
# Of kube-apiserver: one, three, or two. A server runs beside each, and agents look for as many.
replicas: 3

# Whose programs are in the images. Upstream's lack the flags that bind identities: they are left out then.
server: umbilical
images:
  server: registry.example.com/umbilical/umbilical:1.0
  # Both are the server's image unless they are named.
  # agent: registry.example.com/umbilical/umbilical:1.0
  # proxy: registry.example.com/umbilical/umbilical:1.0

# How agents on nodes reach the servers. The host is in the certificate, so it has to be known now.
#   route         host is a name; port 443
#   nodeport      host is a node's name or address; port is one of 30000 to 32767
#   loadbalancer  host is the load balancer's name or address; port 8091
publish:
  strategy: route
  host: konnectivity-guest.apps.example.com
  # port: 443
  # Of the Route: by which a router of the control plane's own finds it, as HyperShift has one for private clusters.
  # labels:
  #   hypershift.openshift.io/hosted-control-plane: clusters-guest
  #   hypershift.openshift.io/internal-route: "true"

# Of the hosted cluster; no proxy may be asked for them.
networks:
  cluster: [10.132.0.0/14]
  service: [172.31.0.0/16]
  machine: [192.168.10.0/24]

agents:
  # On the host's network they work before there is a pod network. false needs a pod network that comes without them.
  hostNetwork: true
  # The node's resolver (Default), or the hosted cluster's (ClusterFirst).
  dnsPolicy: Default
  # Agents beside the control plane, for aggregated APIs.
  controlPlaneReplicas: 2
  # As whom those run; 0 leaves it to the management cluster, which must then choose (OpenShift's SCCs do).
  controlPlaneUser: 0

kubeApiserver:
  # A Deployment, or a static pod (workload: Pod), in a file beside this one. Without it a patch is written.
  # manifest: kube-apiserver.yaml
  workload: Deployment
  name: kube-apiserver
  # The container that gets the egress selector.
  container: kube-apiserver
  # By which Services and network policies find its pods.
  labels:
    app: kube-apiserver
  # What everybody may reach of it, as ever: network policies close the rest.
  ports: [6443]
  # false where a configuration file takes the place of flags: put egress-selector-config-file there yourself.
  egressFlag: true

# Services of the control-plane namespace that answer for API groups of the hosted cluster. Their ClusterIPs are given
# here, or looked up at each rendering with --management-kubeconfig, which also finds Services with the label
# umbilical.dev/aggregated-api=true. With groups, aggregatedAuthority has to be given: the PEM of who signed their
# serving certificates.
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

# How agents learn how many servers there are: by the number of replicas, or by leases in the hosted cluster, which stay
# right during a roll-out. Leases need a kubeconfig for the servers.
serverCount: replicas
# leases:
#   kubeconfigSecret: konnectivity-server-kubeconfig
#   user: system:konnectivity-server

# intermediate: TLS 1.2 with six suites, and 1.3; modern: 1.3 only.
tlsProfile: intermediate

pki:
  # separate: an agent's certificate opens nothing on the frontend; single: one signer for all.
  signers: separate
  # rsa-2048 or ecdsa-p256.
  keyType: rsa-2048
  authorityDays: 3650
  certificateDays: 365
  # A certificate is renewed when less than this part of its life is left.
  renewPercent: 33
  # true: the signers' keys become Secrets as well.
  signersInCluster: false

# The proxy by which the data plane reaches what is outside: for sidecars, and for agents on their way to the servers.
# proxy:
#   http: http://user:password@proxy.example.com:3128
#   https: http://user:password@proxy.example.com:3128
#   noProxy: [.example.com]
#   trustedCa: user-ca-bundle

# The management cluster's own proxy: for sidecars on their way to clouds' APIs, which they dial by themselves. Never
# for the hosted cluster: the patch of kube-apiserver then sets NO_PROXY, to this list and the networks above.
# managementProxy:
#   https: http://user:password@proxy.mgmt.example.com:3128
#   noProxy: [.mgmt.example.com]

monitoring:
  enabled: true
  # From where metrics are read.
  namespaces: [openshift-monitoring, openshift-user-workload-monitoring]

# Deployments of the control-plane namespace that get proxies as sidecars.
components:
  - openshift-apiserver
  - openshift-oauth-apiserver
  - oauth-openshift
  - ingress-operator
  - olm-operator
  - catalog-operator
  - packageserver

# Of the management cluster.
clusterDomain: cluster.local
# Of the control-plane agent. kube-apiserver's own, and not the lesser one of other pods: API calls hang on both.
priorityClass: hypershift-api-critical
"""
