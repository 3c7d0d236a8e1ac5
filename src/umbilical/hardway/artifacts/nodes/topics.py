"""The files of nodes in words. What static pods read besides is told where that is made."""

import posixpath
from collections.abc import Iterator
from typing import Final

from umbilical.bootstrap.names import BOOTKUBE, NATIVE
from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.nodes import bootkube, kubelet, machine, render
from umbilical.hardway.artifacts.static_pods.placement import ProgramFlags
from umbilical.hardway.explain.entry import Topic, TopicKind

STAGE: Final = 8
_ANY: Final = "NODE"
_UNITS: Final = "/etc/systemd/system"


def _config(name: str, what: str, readers: str, without: str, installer: str) -> Topic:
    by_hand = f"jq -r '.storage.files[].path, .systemd.units[].name' artifacts/{layout.IGNITION}/{name}"
    return Topic(TopicKind.FILE, name, STAGE, what, readers, without, by_hand, installer)


def _file(path: str, what: str, readers: str, without: str, installer: str, node: str = _ANY) -> Topic:
    """`node`: whose config to look into; what is on all nodes is shown for any."""
    selected = f'.storage.files[] | select(.path == "{path}") | .contents.source'
    by_hand = f"jq -r '{selected}' artifacts/{layout.IGNITION}/{node}.ign | cut -d, -f2- | base64 -d | zcat -f"
    return Topic(TopicKind.FILE, posixpath.basename(path), STAGE, what, readers, without, by_hand, installer)


def _unit(name: str, what: str, readers: str, without: str, installer: str, node: str = _ANY) -> Topic:
    selected = f'.systemd.units[] | select(.name == "{name}") | .contents'
    by_hand = f"jq -r '{selected}' artifacts/{layout.IGNITION}/{node}.ign; systemctl status {name} on the node"
    return Topic(TopicKind.FILE, name, STAGE, what, readers, without, by_hand, installer)


def _flags(program: ProgramFlags) -> Iterator[Topic]:
    for row in program.flags:
        yield Topic(
            TopicKind.FLAG,
            f"{program.name} --{row.name}",
            STAGE,
            f"{row.why[0].upper()}{row.why[1:]}.",
            program.name,
            row.without,
            f"systemctl cat {kubelet.UNIT} | grep -- --{row.name}=",
            f"As for all flags of {program.name}: {program.installer}",
        )


_CONFIGS: Final = (
    _config(
        "bootstrap.ign",
        "All that makes a machine the bootstrap node: a kubelet that stands alone, static pods of a whole control "
        "plane with their keys, and one script. No object of the cluster is in it: those are applied through the API.",
        "Ignition, in the initramfs of the machine's first boot",
        "There is no first API, so nothing else can begin. A fault in it stops the boot in an emergency shell.",
        "openshift-install create ignition-configs writes one of some 280 KB, with every manifest in it.",
    ),
    _config(
        "master-N.ign",
        "A master: its role's base (a rendered MachineConfig, or the built-in one) with this node's own address, name, "
        "and first identity merged into it by path.",
        "Ignition at the master's first boot",
        "Appended blindly, the pull secret's path stands twice, and Ignition refuses: duplicate entry defined.",
        "A pointer of 1.7 KB; the machine fetches the rest from the machine-config server on port 22623.",
    ),
    _config(
        "worker-N.ign",
        "A worker: the same as for a master, on the worker role's base.",
        "Ignition at the worker's first boot",
        "The node never asks for a certificate, so it never appears.",
        "A pointer to the machine-config server, as for masters.",
    ),
)
_ON_ALL: Final = (
    _file(
        machine.KEYFILE,
        "The node's fixed address, gateway and resolver; in the kubernetes profile the routes to other members' pods "
        "too. Mode 0600.",
        "NetworkManager, at every boot",
        "The machine takes some address of DHCP's, for which no certificate and no load balancer knows it. Readable "
        "for others, NetworkManager ignores it.",
        "None: machines have DHCP, or whoever installs them gives kernel arguments.",
    ),
    _file(
        machine.HOSTNAME,
        "The node's full name: also that of its Node object, its CSRs, its certificates and its line in HAProxy.",
        "systemd-hostnamed, kubelet",
        "The kubelet registers as localhost, or under whatever name DNS has for its address.",
        "From DHCP or reverse DNS.",
    ),
    _file(
        layout.KUBELET_CONFIG,
        "The kubelet's configuration. On the bootstrap node webhooks are off and all is allowed, since there is no API "
        "to ask; on members it asks for both its certificates and lets the API decide who may call it.",
        "kubelet (--config)",
        "Standalone with the defaults of a file: `no client provided, cannot use webhook authentication`, and it ends.",
        "Flags alone on the bootstrap node; on members /etc/kubernetes/kubelet.conf of the machine-config operator.",
    ),
    _unit(
        kubelet.UNIT,
        "Runs the kubelet, and again ten seconds after it ends.",
        "systemd",
        "The machine boots, and nothing of Kubernetes starts.",
        "The same name; on members with more drop-ins of the machine-config operator.",
    ),
)
_ON_BOOTSTRAP: Final = (
    _file(
        BOOTKUBE,
        "Makes the tunnel's certificates, waits until kube-apiserver says `ok`, and on OpenShift lets the "
        "cluster-version operator start once CRDs and FeatureGate are there. In /usr/local/bin, where SELinux lets "
        "systemd run it.",
        f"systemd ({bootkube.UNIT})",
        "The tunnel's server waits for its certificates, and on OpenShift no operator is ever installed. Below /opt: "
        "Permission denied, 203/EXEC.",
        "The same name and many more steps: it renders every operator's manifests in containers and applies them.",
        "bootstrap",
    ),
    _unit(
        bootkube.UNIT,
        f"Runs {BOOTKUBE} until it has succeeded once; {bootkube.DONE} then keeps it from running again.",
        "systemd",
        "The script lies there and nobody runs it.",
        "The same, with a record of its stages for `openshift-install gather`.",
        "bootstrap",
    ),
    _file(
        NATIVE.certificate_script,
        "Makes the tunnel's certificates on the node itself, for one day, and throws the signer's key away.",
        BOOTKUBE,
        "The tunnel's server has nothing to show: agents end with `remote error` or are refused.",
        "A script of the same name, where the tunnel is switched on.",
        "bootstrap",
    ),
)
_ON_OPENSHIFT: Final = (
    _file(
        machine.PAUSE_DROP_IN,
        "Which image holds a pod's namespaces, with which credentials it is pulled and what it runs.",
        "CRI-O at its start",
        "CRI-O pulls registry.k8s.io/pause, to which the pull secret gives no access: no pod gets a sandbox.",
        "/etc/crio/crio.conf.d/50-bootstrap-override.conf; on members 00-default of the machine-config operator.",
        "bootstrap",
    ),
    _file(
        layout.PULL_SECRET,
        "The pull secret: how the node logs in to registries. Mode 0600.",
        "kubelet, CRI-O, podman",
        "Every image pull ends with `unauthorized`.",
        "The same path.",
    ),
    _file(
        render.API_SERVER_ENV,
        "Where the API is, for those that run before services have addresses: api-int and its port.",
        "the network operator and others on the host's network",
        "The network operator exits with 1; no node gets a network, and its operators time out on 172.30.0.1.",
        "From the machine-config operator's templates.",
        "master-0",
    ),
    _file(
        machine.NODE_ANNOTATIONS,
        "Which rendered MachineConfig the node was made from.",
        "the machine-config daemon, at its first start",
        "It cannot tell which config the node has, and the pool is degraded.",
        "The machine-config server adds it to what it serves.",
        "master-0",
    ),
    _file(
        machine.CONTENT,
        "That MachineConfig as a whole. Ours is for root alone, because the pull secret is in it.",
        "whoever looks for drift",
        "Nothing breaks; one piece of evidence is missing.",
        "The machine-config server adds it, readable for all.",
        "master-0",
    ),
    _file(
        machine.ENCAPSULATED,
        "What of the MachineConfig Ignition cannot do: the OS image and kernel arguments. Last of the files, as a mark "
        "that all others are written.",
        "machine-config-daemon-firstboot.service",
        "The node stays on the OS of its boot image, without its kernel arguments.",
        "The machine-config server adds it.",
        "master-0",
    ),
)
_ON_MEMBERS: Final = (
    _file(
        layout.KUBELET_CLIENT_CA,
        "Whose clients the kubelet believes: kube-apiserver's for logs and exec, administrators.",
        "kubelet (clientCAFile)",
        "The kubelet ends at its start: unable to load client CA file. The log that all this began with wrote "
        "/etc/kubernetes/ca.crt, which nobody reads.",
        "The machine-config server adds it.",
        "master-0",
    ),
    _file(
        layout.BOOTSTRAP_KUBECONFIG,
        "The kubelet's first identity: it may ask for a certificate and nothing else.",
        "kubelet (--bootstrap-kubeconfig); on OpenShift kube-proxy where that is on",
        "No CSR appears, and the node never joins.",
        "The machine-config server adds it.",
        "master-0",
    ),
    _file(
        machine.CONFLIST,
        "The pods' network in the kubernetes profile: a bridge, and addresses from this node's piece of the pod "
        "network.",
        "containerd, for every pod that is not on the host's network",
        "The node stays NotReady: cni plugin not initialized.",
        "None: OpenShift's network operator brings the network.",
        "master-0",
    ),
)
TOPICS: Final[tuple[Topic, ...]] = (
    *_CONFIGS,
    *_ON_ALL,
    *_ON_BOOTSTRAP,
    *_ON_OPENSHIFT,
    *_ON_MEMBERS,
    *_flags(kubelet.KUBELET),
)
