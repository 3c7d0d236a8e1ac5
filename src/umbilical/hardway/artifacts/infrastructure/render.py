"""Renders the infrastructure files of stage 02, and explains each."""

from typing import Final

from umbilical.hardway.artifacts.infrastructure import places
from umbilical.hardway.artifacts.infrastructure.haproxy import haproxy_bootstrap, haproxy_final
from umbilical.hardway.artifacts.infrastructure.host_plan import BOOLEAN, ZONE, plan_json, plan_script
from umbilical.hardway.artifacts.infrastructure.libvirt import domain_xml, network_xml
from umbilical.hardway.artifacts.infrastructure.zones import cluster_zone, corefile, reverse_zone
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.config.cluster import Cluster, Libvirt
from umbilical.hardway.explain.entry import Topic, TopicKind
from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.manifests.tree import PUBLIC_MODE, SCRIPT_MODE, AssetTree


def render_infrastructure(inputs: Inputs, _: AssetTree) -> AssetTree:
    cluster, tree = inputs.cluster, AssetTree()
    tree.add(places.HAPROXY_BOOTSTRAP, haproxy_bootstrap(cluster), PUBLIC_MODE)
    tree.add(places.HAPROXY_FINAL, haproxy_final(cluster), PUBLIC_MODE)
    tree.add(places.SERVER_CA, inputs.certificates.bundle(Bundle.SERVER_CA), PUBLIC_MODE)
    if cluster.is_openshift:
        tree.add(places.MACHINE_CONFIG_CA, inputs.certificates["root-ca"].certificate, PUBLIC_MODE)
    tree.add(places.COREFILE, corefile(cluster), PUBLIC_MODE)
    tree.add(places.ZONE, cluster_zone(cluster), PUBLIC_MODE)
    tree.add(places.REVERSE_ZONE, reverse_zone(cluster), PUBLIC_MODE)
    tree.add(places.HOST_PLAN, plan_json(cluster), PUBLIC_MODE)
    libvirt = places.libvirt_of(cluster)
    if libvirt is not None:
        _add_libvirt(tree, cluster, libvirt)
    return tree


def _add_libvirt(tree: AssetTree, cluster: Cluster, libvirt: Libvirt) -> None:
    tree.add(places.HOST_SCRIPT, plan_script(cluster, libvirt), SCRIPT_MODE)
    tree.add(places.NETWORK, network_xml(cluster, libvirt), PUBLIC_MODE)
    for node in cluster.nodes:
        tree.add(places.domain_file(node), domain_xml(cluster, libvirt, node), PUBLIC_MODE)


STAGE: Final = 2


def _file(path: str, what: str, readers: str, without: str, by_hand: str, installer: str) -> Topic:
    name = path.rpartition("/")[2]
    return Topic(TopicKind.FILE, name, STAGE, what, readers, without, by_hand, installer)


TOPICS: Final[tuple[Topic, ...]] = (
    _file(
        places.HAPROXY_BOOTSTRAP,
        "The load balancer's configuration until the pivot. All requests go to the bootstrap node, the only one with"
        " the tunnel; the masters are checked by the same GET /readyz over TLS and are `backup` servers.",
        "HAProxy on the host of the machines",
        "Nodes cannot reach the API at api-int, and kubelets create no CSRs. With an HTTP check but without check-ssl"
        " HAProxy reports L7RSP and marks every server DOWN.",
        "haproxy -c -f artifacts/infrastructure/haproxy.bootstrap.cfg; echo 'show servers state' | socat -"
        f" {places.SERVICE_PLACES.stats_socket}",
        "It sets up no load balancer for platform none: users must provide one with bootstrap and masters.",
    ),
    _file(
        places.HAPROXY_FINAL,
        "The load balancer's configuration after the pivot: masters only. At a reload the new process takes over the"
        " listening sockets, so that no connection is refused; clients resume interrupted watches.",
        "HAProxy on the host of the machines",
        "Requests still go to the bootstrap node, and fail when it is turned off.",
        "diff artifacts/infrastructure/haproxy.bootstrap.cfg artifacts/infrastructure/haproxy.final.cfg; systemctl"
        f" reload haproxy (in a lab: kill -USR2 of `{' '.join(places.balancer_command('DIR'))}`)",
        "It tells users to remove the bootstrap machine from the load balancer.",
    ),
    _file(
        places.SERVER_CA,
        "The signers of kube-apiserver's serving certificates, for HAProxy's health checks.",
        "HAProxy, at its start and at each reload",
        "`haproxy -c` fails: unable to load the CA file; with wrong signers every check fails with L6RSP.",
        "openssl crl2pkcs7 -nocrl -certfile artifacts/infrastructure/haproxy-server-ca.crt | openssl pkcs7 -print_certs"
        " -noout",
        "It makes the same bundle for kubeconfigs; the load balancers in its documents do not verify certificates.",
    ),
    _file(
        places.MACHINE_CONFIG_CA,
        "The signer of the machine-config server's certificate, for the check of port 22623.",
        "HAProxy, at its start and at each reload",
        "`haproxy -c` fails: unable to load the CA file.",
        "openssl x509 -in artifacts/infrastructure/haproxy-machine-config-ca.crt -noout -subject -dates",
        "It puts root-ca into every pointer Ignition file, so that new machines can verify the server.",
    ),
    _file(
        places.COREFILE,
        "The configuration of a CoreDNS that serves the two zones on the nodes' DNS server address.",
        "CoreDNS in a lab; for virtual machines libvirt's dnsmasq does this",
        "No name of the cluster resolves: kubelets log `lookup api-int...: no such host`.",
        "cd artifacts/infrastructure/dns && coredns -conf Corefile; dig @RESOLVER api-int.DOMAIN",
        "It sets up no DNS server for platform none: the records are a prerequisite.",
    ),
    _file(
        places.ZONE,
        "The cluster's names: api and api-int for the API's virtual address, *.apps for the ingress virtual address,"
        " one name per node, and SRV records for etcd's members.",
        "CoreDNS, through the Corefile",
        "Without *.apps routes and console cannot be opened; without api-int no node joins.",
        "dig @RESOLVER +short any-name.apps.DOMAIN; dig @RESOLVER +short SRV _etcd-server-ssl._tcp.DOMAIN",
        "It requires the same records, but no longer those of etcd.",
    ),
    _file(
        places.REVERSE_ZONE,
        "Reverse DNS records, so that a machine without a host name gets the right one.",
        "CoreDNS, through the Corefile; machines at their start",
        "A node without a host name is named localhost, and the CSRs of its kubelet are denied.",
        "dig @RESOLVER +short -x NODE-ADDRESS",
        "It recommends PTR records; RHCOS takes its host name from them if Ignition sets none.",
    ),
    _file(
        places.NETWORK,
        "The libvirt network: a bridge, masquerading, host names, DHCP for live systems, and a dnsmasq option for the"
        " wildcard *.apps, which libvirt's <dns> does not support.",
        "libvirt: virsh net-define",
        "There is no bridge and no DNS; without DHCP the live system has no address and cannot fetch Ignition files.",
        "virsh net-define artifacts/infrastructure/network.xml && virsh net-start NAME; virsh net-dumpxml NAME",
        "Its libvirt support (for developers) makes a network with the same dnsmasq option.",
    ),
    Topic(
        TopicKind.FILE,
        "domains",
        STAGE,
        "<node id>.xml: one virtual machine each. It boots from disk first, then the live system; its console listens"
        " on loopback; MAC address and UUID follow from the names, so that defining it again changes nothing.",
        "libvirt: virsh define",
        "With the live system first the machine installs itself again at every start; with paths outside the pool QEMU"
        " reports Permission denied.",
        "virsh define artifacts/infrastructure/domains/master-0.xml; virsh dumpxml NAME | grep boot",
        "It creates no machines on platform none.",
    ),
    _file(
        places.HOST_PLAN,
        "Settings that the host needs: virtual addresses on the bridge, NAT, firewall, SELinux. Each has commands that"
        " check, do and undo it. It also lists the files in the storage pool.",
        "stage 02, and rollback",
        "Machines cannot dial 6443 of their host, or cannot reach any registry.",
        "jq -r '.actions[] | .id, .do' artifacts/infrastructure/host-plan.json",
        "Its documents list the ports to open; users must do it.",
    ),
    _file(
        places.HOST_SCRIPT,
        f"host-plan.json as a script with check, apply and undo: firewalld zone {ZONE}, SELinux boolean {BOOLEAN},"
        " iptables and the bridge.",
        "administrators who prepare the host by hand",
        "Nothing breaks: stage 02 uses host-plan.json.",
        "bash artifacts/infrastructure/host-plan.sh check",
        "None.",
    ),
)
