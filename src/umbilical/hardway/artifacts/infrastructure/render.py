"""The recipe of stage 02: all that lies around the nodes as files, each explained."""

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
        "The load balancer until the pivot. Every request goes to the bootstrap node, which alone has the tunnel; the"
        " masters are checked by the same GET /readyz over TLS and stand by as `backup`.",
        "HAProxy on the host of the machines",
        "Nodes find no API at api-int, and no kubelet ever asks for a certificate. With an HTTP check but no check-ssl"
        " HAProxy says L7RSP and holds every server DOWN.",
        "haproxy -c -f artifacts/infrastructure/haproxy.bootstrap.cfg; echo 'show servers state' | socat -"
        f" {places.SERVICE_PLACES.stats_socket}",
        "It brings no load balancer for platform none: you are to have one, with bootstrap and masters in it.",
    ),
    _file(
        places.HAPROXY_FINAL,
        "The load balancer after the pivot: masters only. A reload hands the listening sockets from the old process to"
        " the new one, so that no connection is refused; cut watches resume.",
        "HAProxy on the host of the machines",
        "Requests still go to a bootstrap node that is being switched off, and fail with it.",
        "diff artifacts/infrastructure/haproxy.bootstrap.cfg artifacts/infrastructure/haproxy.final.cfg; systemctl"
        f" reload haproxy (in a lab: kill -USR2 of `{' '.join(places.balancer_command('DIR'))}`)",
        "It tells you to take the bootstrap machine out of the load balancer by hand.",
    ),
    _file(
        places.SERVER_CA,
        "The signers of kube-apiserver's serving certificates. HAProxy's checks believe nobody else to be it.",
        "HAProxy, at its start and at each reload",
        "`haproxy -c` fails: unable to load the CA file; with wrong signers every check says L6RSP and all are DOWN.",
        "openssl crl2pkcs7 -nocrl -certfile artifacts/infrastructure/haproxy-server-ca.crt | openssl pkcs7 -print_certs"
        " -noout",
        "It makes the same bundle for kubeconfigs; load balancers in its documents check without looking.",
    ),
    _file(
        places.MACHINE_CONFIG_CA,
        "The signer of the machine-config server's certificate, for the check of port 22623.",
        "HAProxy, at its start and at each reload",
        "`haproxy -c` fails: unable to load the CA file.",
        "openssl x509 -in artifacts/infrastructure/haproxy-machine-config-ca.crt -noout -subject -dates",
        "It puts root-ca into every pointer Ignition file, so that new machines believe the same server.",
    ),
    _file(
        places.COREFILE,
        "A resolver's configuration: it serves the two zones beside it on the address that nodes are told.",
        "CoreDNS in a lab; libvirt's own dnsmasq does this for virtual machines",
        "No name of the cluster is known: kubelets say `lookup api-int...: no such host`.",
        "cd artifacts/infrastructure/dns && coredns -conf Corefile; dig @RESOLVER api-int.DOMAIN",
        "It brings no resolver for platform none: the records are a prerequisite.",
    ),
    _file(
        places.ZONE,
        "The cluster's names: api and api-int at the API's virtual address, everything below apps at the routers', each"
        " node, and SRV records for etcd's members.",
        "CoreDNS, by way of the Corefile",
        "Without *.apps no route and no console can be opened; without api-int no node joins.",
        "dig @RESOLVER +short any-name.apps.DOMAIN; dig @RESOLVER +short SRV _etcd-server-ssl._tcp.DOMAIN",
        "It asks for the same records, and no longer for those of etcd.",
    ),
    _file(
        places.REVERSE_ZONE,
        "From addresses to names; each node's own name, so that a machine without one learns the right one.",
        "CoreDNS, by way of the Corefile; machines at their start",
        "A node that knows no name of its own stays localhost, and its kubelet asks for a certificate nobody grants.",
        "dig @RESOLVER +short -x NODE-ADDRESS",
        "It recommends PTR records; RHCOS takes its host name from them when Ignition gives none.",
    ),
    _file(
        places.NETWORK,
        "libvirt's network: a bridge, masquerading, names with the full one first, DHCP for live systems, and a"
        " dnsmasq option for the wildcard that libvirt's own <dns> cannot say.",
        "libvirt: virsh net-define",
        "No bridge and no names; without DHCP the live system has no address and fetches no Ignition file.",
        "virsh net-define artifacts/infrastructure/network.xml && virsh net-start NAME; virsh net-dumpxml NAME",
        "Its libvirt support (for developers) makes a network with the same dnsmasq option.",
    ),
    Topic(
        TopicKind.FILE,
        "domains",
        STAGE,
        "One virtual machine each, <node id>.xml: the disk boots first, the live system behind it; a console for this"
        " host alone; card and UUID follow from the names, so that defining it again changes nothing.",
        "libvirt: virsh define",
        "With the live system first the machine installs itself again at every start; with paths outside the pool QEMU"
        " says Permission denied.",
        "virsh define artifacts/infrastructure/domains/master-0.xml; virsh dumpxml NAME | grep boot",
        "It makes no machines on platform none.",
    ),
    _file(
        places.HOST_PLAN,
        "What the host must let through, for programs: virtual addresses on the bridge, NAT, firewall, SELinux; each"
        " with how to see it, how to do it and how to take it back, and where files lie in the pool.",
        "stage 02, and rollback",
        "Machines cannot dial 6443 or 8080 of their host, or cannot reach any registry.",
        "jq -r '.actions[] | .id, .do' artifacts/infrastructure/host-plan.json",
        "Its documents list ports to open; no tool does it.",
    ),
    _file(
        places.HOST_SCRIPT,
        f"The same plan for people: check, apply and undo, for firewalld's zone {ZONE}, SELinux's {BOOLEAN}, iptables"
        " and the bridge.",
        "whoever prefers to do it by hand",
        "As for the plan itself.",
        "bash artifacts/infrastructure/host-plan.sh check",
        "Nothing of the kind.",
    ),
)
