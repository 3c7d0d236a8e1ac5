"""Makes a cluster from the user's values: missing ones get defaults or are computed, each with its origin.

Reports only what cannot be represented. The lint's CFG rules check whether the cluster makes sense.
"""

import ipaddress
from collections.abc import Iterator
from enum import Enum
from itertools import islice
from typing import Final

from umbilical.hardway.config.cluster import (
    DNS_NUMBER,
    AddressRange,
    CertificateTerms,
    Cluster,
    ClusterAccess,
    ClusterNetworks,
    ClusterNode,
    ClusterProfile,
    Libvirt,
    MachineSize,
    MachinesKind,
    NodeRole,
    Origins,
    ReleaseSource,
    Switch,
)
from umbilical.manifests.objects import IpAddress, IpNetwork

NAME: Final = "ocp4"
LAB_NAME: Final = "lab"
BASE_DOMAIN: Final = "example.com"
RELEASE_VERSION: Final = "4.18.0"
RELEASE_IMAGE: Final = (
    "quay.io/openshift-release-dev/ocp-release@sha256:5bca02661d61955b62889e7e2e648905b7202d5788f5ba5ab69055a73dffdb5c"
)
# The version that `make peers` builds; also the default of the lab.
UPSTREAM_VERSION: Final = "v1.37.1"
LAB_REPOSITORY: Final = "localhost"
LAB_TAG: Final = "lab"

MACHINE_NETWORK: Final[IpNetwork] = ipaddress.ip_network("192.168.126.0/24")
POD_NETWORK: Final[IpNetwork] = ipaddress.ip_network("10.128.0.0/14")
SERVICE_NETWORK: Final[IpNetwork] = ipaddress.ip_network("172.30.0.0/16")
HOST_PREFIX: Final = 23
LAB_HOST_PREFIX: Final = 24


class FixedAddress(Enum):
    """Default addresses; the value is the number in the machine network."""

    GATEWAY = 1
    LAB_HOST = 2
    """The lab's node with load balancer and DNS server; it takes the place of the virtualisation host."""
    API_VIP = 10
    INGRESS_VIP = 11
    BOOTSTRAP = 100
    MASTER = 101
    WORKER = 110
    DHCP_FIRST = 200
    DHCP_LAST = 254


SIZES: Final = {
    NodeRole.BOOTSTRAP: MachineSize(4, 16384, 100),
    NodeRole.MASTER: MachineSize(4, 16384, 100),
    NodeRole.WORKER: MachineSize(4, 8192, 100),
}


_GROUPS: Final = ((NodeRole.MASTER, "masters", 3), (NodeRole.WORKER, "workers", 2))


class Unaddressable(Exception):
    """The machine network is too small for a default address."""


class ConfigResolver:
    """Collects problems and continues, so that all are reported together."""

    def __init__(self, origins: Origins) -> None:
        self.origins = origins
        self.problems: list[str] = []
        take = origins.take
        self.profile = take("profile", ClusterProfile.OPENSHIFT)
        self._is_openshift = self.profile is ClusterProfile.OPENSHIFT
        self.machines = take("machines", MachinesKind.LIBVIRT if self._is_openshift else MachinesKind.LAB, "profile")
        self._is_lab = self.machines is MachinesKind.LAB

    def cluster(self) -> Cluster:
        take = self.origins.take
        if self._is_lab and self._is_openshift:
            self.problems.append("machines: lab: RHCOS does not run in namespaces; the profile openshift needs libvirt")
        name = take("name", LAB_NAME if self._is_lab else NAME)
        base = take("baseDomain", BASE_DOMAIN)
        domain = self.origins.derive("domain", f"{name}.{base}", "name, baseDomain")
        networks = self._networks()
        cluster = Cluster(
            profile=self.profile,
            name=name,
            base_domain=base,
            networks=networks,
            nodes=self._nodes(domain, networks),
            release=self._release(),
            machines=self.machines,
            access=self._access(),
            libvirt=None if self._is_lab else self._libvirt(name),
            sizes={} if self._is_lab else {role: self._size(role) for role in NodeRole},
            konnectivity=take("konnectivity", Switch.AUTO),
            kube_proxy=take("kubeProxy", Switch.AUTO),
            terms=self._terms(),
        )
        self._derived(cluster)
        return cluster

    def _networks(self) -> ClusterNetworks:
        take = self.origins.take
        machine = take("networks.machine", MACHINE_NETWORK)
        services = take("networks.services", SERVICE_NETWORK)
        dns = FixedAddress.LAB_HOST if self._is_lab else FixedAddress.GATEWAY
        networks = ClusterNetworks(
            machine=machine,
            pods=take("networks.pods", POD_NETWORK),
            services=services,
            host_prefix=take("networks.hostPrefix", LAB_HOST_PREFIX if self._is_lab else HOST_PREFIX, "machines"),
            gateway=self._numbered("networks.gateway", machine, FixedAddress.GATEWAY),
            dns=self._numbered("networks.dns", machine, dns),
            api_vip=self._numbered("networks.apiVip", machine, FixedAddress.API_VIP),
            ingress_vip=self._numbered("networks.ingressVip", machine, FixedAddress.INGRESS_VIP),
            dhcp=self._dhcp(machine),
        )
        for key, other in (("pods", networks.pods), ("services", services)):
            if other.version != machine.version:
                self.problems.append(f"networks.{key} {other} has another address family than networks.machine")
        if services.num_addresses <= DNS_NUMBER:
            self.problems.append(f"networks.services {services} is too small: address {DNS_NUMBER} is the cluster DNS")
        return networks

    def _dhcp(self, machine: IpNetwork) -> AddressRange | None:
        """Return None for a lab, which has no live systems."""
        if self._is_lab:
            return None
        first = self._numbered("networks.dhcp.first", machine, FixedAddress.DHCP_FIRST)
        return AddressRange(first, self._numbered("networks.dhcp.last", machine, FixedAddress.DHCP_LAST))

    def _numbered(
        self, path: str, network: IpNetwork, fixed: FixedAddress, offset: int = 0, *, given_as: str = ""
    ) -> IpAddress:
        """Take an address; the default is the one with this number in the machine network."""
        if self.origins.is_given(given_as or path):
            address = self.origins.take(path, network[0], given_as=given_as)
        else:
            try:
                address = _member(network, fixed.value + offset)
            except Unaddressable as error:
                self.problems.append(f"{error}; set {given_as or path}")
                return network[0]
            self.origins.take(path, address, f"networks.machine, number {fixed.value + offset}")
        if address.version != network.version:
            self.problems.append(f"{given_as or path} {address} has another address family than networks.machine")
        return address

    def _nodes(self, domain: str, networks: ClusterNetworks) -> tuple[ClusterNode, ...]:
        bootstrap = self._node("bootstrap", NodeRole.BOOTSTRAP, domain, "nodes.bootstrap", networks, None)
        members: list[tuple[str, NodeRole, str, int]] = []
        counts = {group: self._count(group, usual) for _, group, usual in _GROUPS}
        for role, group, _ in _GROUPS:
            members += [
                (f"{role.value}-{index}", role, f"nodes.{group}.machines[{index}]", index)
                for index in range(counts[group])
            ]
        pieces = self._pod_networks(networks, len(members))
        nodes = [bootstrap]
        for number, (node_id, role, path, index) in enumerate(members):
            piece = pieces[number] if number < len(pieces) else None
            nodes.append(self._node(node_id, role, domain, path, networks, piece, index))
        return tuple(nodes)

    def _count(self, group: str, usual: int) -> int:
        path = f"nodes.{group}"
        listed = sum(1 for _ in self._listed(path))
        count = self.origins.take(f"{path}.count", listed or usual, f"{path}.machines" if listed else "")
        if listed > count:
            self.problems.append(f"{path}.machines has {listed} entries, and {path}.count is {count}")
        return count

    def _listed(self, path: str) -> Iterator[int]:
        index = 0
        while self.origins.is_given(f"{path}.machines[{index}]"):
            yield index
            index += 1

    def _pod_networks(self, networks: ClusterNetworks, count: int) -> list[IpNetwork]:
        """Cut the pod network into one CIDR per node; in OpenShift the network operator does it."""
        if self._is_openshift:
            return []
        pods, prefix = networks.pods, networks.host_prefix
        what = f"networks.hostPrefix {prefix} does not divide networks.pods {pods}"
        if not pods.prefixlen < prefix <= pods.max_prefixlen:
            self.problems.append(what)
            return []
        pieces: list[IpNetwork] = list(islice(pods.subnets(new_prefix=prefix), count))
        if len(pieces) < count:
            self.problems.append(f"{what} into enough CIDRs: {count} nodes, {len(pieces)} CIDRs")
        return pieces

    def _node(
        self,
        node_id: str,
        role: NodeRole,
        domain: str,
        given: str,
        networks: ClusterNetworks,
        piece: IpNetwork | None,
        index: int = 0,
    ) -> ClusterNode:
        path = f"node.{node_id}"
        derive = self.origins.derive
        if piece is not None:
            derive(f"{path}.podNetwork", piece, "networks.pods, networks.hostPrefix")
        return ClusterNode(
            id=node_id,
            role=role,
            address=self._node_address(path, role, given, networks.machine, index),
            name=derive(f"{path}.name", f"{node_id}.{domain}", "domain"),
            pod_network=piece,
            mac=self._if_given(f"{path}.mac", f"{given}.mac"),
            interface=self._if_given(f"{path}.interface", f"{given}.interface"),
        )

    def _if_given(self, path: str, given: str) -> str:
        """Take a value only if it is given, so that `config view` does not list empty ones."""
        return self.origins.take(path, "", given_as=given) if self.origins.is_given(given) else ""

    def _node_address(self, path: str, role: NodeRole, given: str, machine: IpNetwork, index: int) -> IpAddress:
        path, given = f"{path}.address", f"{given}.address"
        first_path = f"{given.split('.machines', maxsplit=1)[0]}.firstAddress"
        if self.origins.is_given(given) or not self.origins.is_given(first_path):
            return self._numbered(path, machine, FixedAddress[role.name], index, given_as=given)
        first = self.origins.take(first_path, machine[0])
        if first.version != machine.version:
            self.problems.append(f"{first_path} {first} has another address family than networks.machine")
            return first
        try:
            return self.origins.derive(path, first + index, first_path)
        except ValueError:
            self.problems.append(f"{first_path} {first}: no address is left for {path.split('.')[1]}")
            return first

    def _release(self) -> ReleaseSource:
        take = self.origins.take
        if not self._is_openshift:
            return ReleaseSource(
                version=take("release.version", UPSTREAM_VERSION),
                repository=take("release.repository", LAB_REPOSITORY),
                tag=take("release.tag", LAB_TAG),
                tunnel_archive=take("release.tunnelArchive", ""),
            )
        is_default = not (self.origins.is_given("release.image") or self.origins.is_given("release.directory"))
        return ReleaseSource(
            image=take("release.image", RELEASE_IMAGE if is_default else ""),
            directory=take("release.directory", ""),
            version=take("release.version", RELEASE_VERSION if is_default else ""),
        )

    def _access(self) -> ClusterAccess:
        take = self.origins.take
        return ClusterAccess(
            take("access.sshKeys", ()),
            take("access.pullSecretFile", "pull-secret.json" if self._is_openshift else "", "profile"),
            take("access.sshKeyFile", ""),
        )

    def _libvirt(self, name: str) -> Libvirt:
        take = self.origins.take
        pool = take("libvirt.pool", name, "name")
        return Libvirt(
            network=take("libvirt.network", name, "name"),
            pool=pool,
            pool_directory=take("libvirt.poolDirectory", f"/var/lib/libvirt/images/{pool}", "libvirt.pool"),
            bridge=take("libvirt.bridge", f"virbr-{name}", "name"),
            uplink=take("libvirt.uplink", "eth0"),
            iso=take("libvirt.iso", "rhcos-live.iso"),
            stats_port=take("libvirt.statsPort", Libvirt.stats_port),
        )

    def _size(self, role: NodeRole) -> MachineSize:
        path, usual = f"sizes.{role.value}", SIZES[role]
        take = self.origins.take
        return MachineSize(
            take(f"{path}.cpus", usual.cpus),
            take(f"{path}.memoryMiB", usual.memory_mib),
            take(f"{path}.diskGiB", usual.disk_gib),
        )

    def _terms(self) -> CertificateTerms:
        take = self.origins.take
        return CertificateTerms(
            take("certificates.keyType", CertificateTerms.key_type),
            take("certificates.shortHours", CertificateTerms.short_hours),
            take("certificates.budgetHours", CertificateTerms.budget_hours),
        )

    def _derived(self, cluster: Cluster) -> None:
        derive = self.origins.derive
        derive("apiUrl", cluster.api_url, "domain")
        derive("internalApiUrl", cluster.internal_api_url, "domain")
        derive("appsDomain", cluster.apps_domain, "domain")
        if cluster.networks.services.num_addresses > DNS_NUMBER:
            derive("serviceIp", cluster.service_ip, "networks.services, number 1")
            derive("clusterDnsIp", cluster.dns_ip, f"networks.services, number {DNS_NUMBER}")
        derive("hasKubeProxy", cluster.has_kube_proxy, "kubeProxy, profile")


def _member(network: IpNetwork, number: int) -> IpAddress:
    # The last address of an IPv4 network is the broadcast address.
    if number >= network.num_addresses - (network.version == 4):
        raise Unaddressable(f"networks.machine {network} has no address number {number}")
    return network[number]
