"""Explanations of the files on nodes; those of certificates and static pods are beside their tables."""

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
    """`node`: the node in the command that shows the file."""
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
            f"For all flags of {program.name}: {program.installer}",
        )


_CONFIGS: Final = (
    _config(
        "bootstrap.ign",
        "The config of the bootstrap node: a standalone kubelet, static pods of a control plane with their keys, and "
        "bootkube.sh. It contains no objects of the cluster; those are applied through the API.",
        "Ignition, in the initramfs of the machine's first boot",
        "There is no API, and the installation cannot start. An error in it stops the boot in an emergency shell.",
        "openshift-install create ignition-configs writes a file of about 280 KB, with every manifest in it.",
    ),
    _config(
        "master-N.ign",
        "The config of a master: the base of its role (a rendered MachineConfig or the built-in one), with the node's "
        "address, name and bootstrap kubeconfig merged into it by path.",
        "Ignition at the master's first boot",
        "If files are appended instead of merged, the pull secret is there twice: duplicate entry defined.",
        "A pointer config of 1.7 KB; the machine fetches the rest from the machine-config server on port 22623.",
    ),
    _config(
        "worker-N.ign",
        "The config of a worker: as for a master, with the base of the worker role.",
        "Ignition at the worker's first boot",
        "The node requests no certificate and never joins.",
        "A pointer config for the machine-config server, as for masters.",
    ),
)
_ON_ALL: Final = (
    _file(
        machine.KEYFILE,
        "The node's fixed address, gateway and DNS server; in the kubernetes profile also the routes to other nodes' "
        "pods. Mode 0600.",
        "NetworkManager, at every boot",
        "The machine gets an address from DHCP that is in no certificate and not in the load balancer. If other users "
        "can read the file, NetworkManager ignores it.",
        "None: machines use DHCP or kernel arguments.",
    ),
    _file(
        machine.HOSTNAME,
        "The node's full name, the same as in its Node object, CSRs, certificates and HAProxy.",
        "systemd-hostnamed, kubelet",
        "The kubelet registers as localhost, or with the name that DNS has for its address.",
        "From DHCP or reverse DNS.",
    ),
    _file(
        layout.KUBELET_CONFIG,
        "The kubelet's configuration. On the bootstrap node webhooks are off and everything is allowed, because there "
        "is no API; on other nodes it requests both its certificates, and the API authorizes its clients.",
        "kubelet (--config)",
        "With the defaults a standalone kubelet exits: `no client provided, cannot use webhook authentication`.",
        "Only flags on the bootstrap node; on other nodes kubelet.conf of the machine-config operator.",
    ),
    _unit(
        kubelet.UNIT,
        "Runs the kubelet, and restarts it ten seconds after it ends.",
        "systemd",
        "The machine boots, but no pod starts.",
        "The same name; on masters and workers with more drop-ins of the machine-config operator.",
    ),
)
_ON_BOOTSTRAP: Final = (
    _file(
        BOOTKUBE,
        "Makes the tunnel's certificates, waits until kube-apiserver is ready, and in OpenShift starts the "
        "cluster-version operator when CRDs and FeatureGate exist. It is in /usr/local/bin, where SELinux allows "
        "systemd to run it.",
        f"systemd ({bootkube.UNIT})",
        "The tunnel's server waits for its certificates, and in OpenShift no operator is installed. If it were below "
        "/opt: Permission denied, 203/EXEC.",
        "The same name and many more steps: it renders every operator's manifests in containers and applies them.",
        "bootstrap",
    ),
    _unit(
        bootkube.UNIT,
        f"Runs {BOOTKUBE} until it succeeds; after that {bootkube.DONE} prevents another run.",
        "systemd",
        "The script never runs.",
        "The same, with a record of its stages for `openshift-install gather`.",
        "bootstrap",
    ),
    _file(
        NATIVE.certificate_script,
        "Makes the tunnel's certificates on the node, for one day, and deletes the signer's key.",
        BOOTKUBE,
        "The tunnel's server does not start, and agents get connection refused.",
        "A script of the same name, if the tunnel is turned on.",
        "bootstrap",
    ),
)
_ON_OPENSHIFT: Final = (
    _file(
        machine.PAUSE_DROP_IN,
        "The pause image, its credentials and its command.",
        "CRI-O at its start",
        "CRI-O pulls registry.k8s.io/pause, for which the pull secret has no credentials: no pod gets a sandbox.",
        "/etc/crio/crio.conf.d/50-bootstrap-override.conf; on other nodes 00-default of the machine-config operator.",
        "bootstrap",
    ),
    _file(
        layout.PULL_SECRET,
        "The pull secret: the node's credentials for image registries. Mode 0600.",
        "kubelet, CRI-O, podman",
        "Every image pull fails: unauthorized.",
        "The same path.",
    ),
    _file(
        render.API_SERVER_ENV,
        "Name and port of the API (api-int) for pods that run before cluster IPs work.",
        "the network operator and other hostNetwork pods",
        "The network operator exits with status 1; no node gets a network, and operators time out on 172.30.0.1.",
        "Comes from the machine-config operator's templates.",
        "master-0",
    ),
    _file(
        machine.NODE_ANNOTATIONS,
        "The name of the rendered MachineConfig that the node was made from.",
        "the machine-config daemon, at its first start",
        "The daemon does not know the node's config, and the pool is Degraded.",
        "The machine-config server adds it to the config that it serves.",
        "master-0",
    ),
    _file(
        machine.CONTENT,
        "The whole MachineConfig of the node. Only root can read ours, because it contains the pull secret.",
        "administrators who search for configuration drift",
        "Nothing breaks.",
        "The machine-config server adds it, readable for all users.",
        "master-0",
    ),
    _file(
        machine.ENCAPSULATED,
        "The settings of the MachineConfig that Ignition cannot apply: OS image and kernel arguments. It is the last "
        "file, which shows that all others are written.",
        "machine-config-daemon-firstboot.service",
        "The node keeps the OS version of its boot image, and lacks its kernel arguments.",
        "The machine-config server adds it.",
        "master-0",
    ),
)
_ON_MEMBERS: Final = (
    _file(
        layout.KUBELET_CLIENT_CA,
        "The CA bundle of the kubelet's clients: kube-apiserver for logs and exec, and administrators.",
        "kubelet (clientCAFile)",
        "The kubelet exits at its start: unable to load client CA file.",
        "The machine-config server adds it.",
        "master-0",
    ),
    _file(
        layout.BOOTSTRAP_KUBECONFIG,
        "The kubelet's bootstrap kubeconfig, which only allows it to request its own certificate.",
        "kubelet (--bootstrap-kubeconfig); in OpenShift also kube-proxy, if it is on",
        "The node creates no CSR and never joins.",
        "The machine-config server adds it.",
        "master-0",
    ),
    _file(
        machine.CONFLIST,
        "The CNI configuration of the kubernetes profile: a bridge with addresses from the node's pod CIDR.",
        "containerd, for every pod without hostNetwork",
        "The node stays NotReady: cni plugin not initialized.",
        "None: OpenShift's network operator configures the network.",
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
