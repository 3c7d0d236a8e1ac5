"""The machines of a hard-way cluster as nodes of a lab, and beside them the twin of their virtualisation host."""

import ipaddress
from typing import Final

from umbilical.hardway.config.cluster import Cluster
from umbilical.hardway.config.cluster import Node as ClusterNode
from umbilical.lab.topology import Family, IpInterface, Node, Role, Topology

HOST: Final = "host"
"""Has the load balancer's addresses and the resolver, and is where the pipeline stands."""
FAMILIES: Final = {4: Family.IPV4, 6: Family.IPV6}


def topology_of(cluster: Cluster) -> Topology:
    """Say which nodes the lab of a cluster has. Addresses are the config's own."""
    networks = cluster.networks
    twin = Node(HOST, Role.MANAGEMENT, (ipaddress.ip_interface(f"{networks.dns}/{networks.machine.prefixlen}"),))
    return Topology(
        family=FAMILIES[networks.machine.version],
        machine_networks=(networks.machine,),
        gateways=(networks.gateway,),
        pod_networks=(networks.pods,),
        service_networks=(networks.services,),
        nodes=(twin, *(_node(cluster, node) for node in cluster.nodes)),
    )


def _node(cluster: Cluster, node: ClusterNode) -> Node:
    address: IpInterface = ipaddress.ip_interface(f"{node.address}/{cluster.networks.machine.prefixlen}")
    pods = () if node.pod_network is None else (node.pod_network,)
    return Node(node.id, Role(node.role.value), (address,), pods)
