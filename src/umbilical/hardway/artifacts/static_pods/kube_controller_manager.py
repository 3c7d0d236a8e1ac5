"""kube-controller-manager and kube-scheduler: on the bootstrap node, and in the kubernetes profile on every master.

On OpenShift the controller beside the former hands out user ids to namespaces.
"""

import posixpath
from typing import Any, Final

from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.static_pods.kube_apiserver import control_plane_place
from umbilical.hardway.artifacts.static_pods.placement import (
    VERBOSITY,
    FlagRow,
    PodPlacement,
    ProgramFlags,
    bundle,
    by_profile,
    certificate,
    key,
    kubeconfig,
    on_kubernetes,
    on_openshift,
)
from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.manifests import control_plane_pods
from umbilical.manifests.control_plane_pods import CONTROLLER_MANAGER, CONTROLLER_MANAGER_PORT, loopback_probes
from umbilical.manifests.static_pod import Component, HostFile, static_pod

POLICY_CONTROLLER: Final = "cluster-policy-controller"
POLICY_PORT: Final = 10357
POLICY_CONFIG: Final = "cluster-policy-controller-config.yaml"
_SIGNER: Final = "kubelet-signer"
_SERVING: Final = "kube-apiserver-localhost-server"
_CERTIFICATE_DIRECTORY: Final = "/var/run/kubernetes"
_GRACE_SECONDS: Final = 30


def access_rows(program: str, port: int) -> tuple[FlagRow, ...]:
    """Return what controller-manager and scheduler have alike: how they ask the API, and who may ask them."""
    path = kubeconfig(program)
    return (
        FlagRow(
            "kubeconfig",
            path,
            "how it asks the API: by localhost, so that it needs no load balancer and no name",
            "it exits: invalid configuration: no configuration has been provided",
        ),
        FlagRow("authentication-kubeconfig", path, "how it finds out who asks it", "only anonymous calls are known"),
        FlagRow("authorization-kubeconfig", path, "how it finds out who may ask it", "nobody may read its metrics"),
        FlagRow(
            "authentication-tolerate-lookup-failure",
            "true",
            "the API is ready a moment before the object is there that says who may ask; it starts without",
            "it exits, and comes back only after the kubelet's back-off",
        ),
        FlagRow(
            "bind-address",
            lambda placement: placement.every_address,
            "whoever builds the cluster asks for its health from outside",
            "on loopback alone one has to log in to see whether it lives",
        ),
        FlagRow("secure-port", str(port), "where it answers for its health", "the kubelet's probe fails"),
        FlagRow(
            "leader-elect",
            "true",
            "of all that run, one works; at the pivot a master's takes over from the bootstrap node's",
            "two work at once, against each other",
        ),
        FlagRow(
            "leader-elect-resource-lock",
            "leases",
            "what the lock is kept in",
            "it is the default; others are gone",
        ),
        # On a busy machine an answer of the API may take long, and whoever cannot renew in time ends itself; after
        # the pivot it takes one lease until the next one works.
        FlagRow(
            "leader-elect-lease-duration",
            by_profile(openshift="15s", kubernetes="30s"),
            "how long the others wait after the last renewal; it is over at the pivot, so not longer than needed",
            "with minutes here nobody works for minutes after the pivot",
        ),
        FlagRow(
            "leader-elect-renew-deadline",
            by_profile(openshift="12s", kubernetes="25s"),
            "how long the leader tries to renew before it ends itself; less than the lease",
            "it exits: LeaseDuration must be greater than RenewDeadline",
        ),
        FlagRow("leader-elect-retry-period", "3s", "how often all of them look", "a takeover is seen later"),
        VERBOSITY,
    )


_KEYS: Final[tuple[FlagRow, ...]] = (
    FlagRow(
        "use-service-account-credentials",
        "true",
        "each controller has an account and roles of its own",
        "all of them act as the one client certificate",
    ),
    FlagRow(
        "service-account-private-key-file",
        key("service-account"),
        "signs tokens that are kept in Secrets; kube-apiserver checks them by the public half",
        "such tokens are empty, or nobody accepts them",
    ),
    FlagRow(
        "root-ca-file",
        bundle(Bundle.SERVER_CA),
        "what every pod gets to check the API by (ConfigMap kube-root-ca.crt): all signers of its certificates",
        "in pods: x509: certificate signed by unknown authority",
    ),
    FlagRow(
        "cluster-signing-cert-file",
        certificate(_SIGNER),
        "by whom approved requests of kubelets are signed; kube-apiserver trusts it for clients and for kubelets",
        "approved requests stay without a certificate",
    ),
    FlagRow(
        "cluster-signing-key-file",
        key(_SIGNER),
        "the key of --cluster-signing-cert-file",
        "approved requests stay without a certificate",
    ),
    FlagRow(
        "cluster-signing-duration",
        "720h",
        "how long kubelets' certificates last, at most as long as the signer itself; they renew them in time",
        "one year is the default: a stolen one is good for long",
    ),
)

_NETWORKS: Final[tuple[FlagRow, ...]] = (
    FlagRow(
        "cluster-cidr",
        lambda placement: str(placement.cluster.networks.pods),
        "the pods' network, for controllers that cut pieces of it or check routes",
        "such a controller ends itself: clusterCIDR is required",
    ),
    FlagRow(
        "service-cluster-ip-range",
        lambda placement: str(placement.cluster.networks.services),
        "the services' network, which no pod network may touch",
        "nobody notices when both overlap",
    ),
    FlagRow(
        "allocate-node-cidrs",
        "false",
        "pieces of the pod network are cut by OpenShift's network plugin, and by the config in the kubernetes profile",
        "a /24 for each node, whatever hostPrefix says, against what the network plugin gives out",
    ),
    FlagRow(
        "controllers",
        "*,-ttl,-bootstrapsigner,-tokencleaner",
        "all that OpenShift lets run; nobody joins by token there",
        "annotations on every node that nobody wants",
        on_openshift,
    ),
    FlagRow(
        "cert-dir",
        _CERTIFICATE_DIRECTORY,
        "where it keeps the certificate that it makes for its own port, as long as the pod lives",
        "it keeps one in memory, which is as good; the operator's pods have a directory",
        on_openshift,
    ),
)

_PACE: Final[tuple[FlagRow, ...]] = (
    FlagRow(
        "kube-api-qps",
        "200",
        "forty controllers get their accounts and tokens at once, at every start and so at every pivot",
        "at the usual twenty requests a second they begin to work seven seconds after they may",
        on_kubernetes,
    ),
    FlagRow("kube-api-burst", "400", "the same for the first moment", "as with --kube-api-qps", on_kubernetes),
)

KUBE_CONTROLLER_MANAGER: Final = ProgramFlags(
    CONTROLLER_MANAGER,
    (*access_rows(CONTROLLER_MANAGER, CONTROLLER_MANAGER_PORT), *_KEYS, *_NETWORKS, *_PACE),
    "the controller-manager operator renders a KubeControllerManagerConfig with these as extendedArguments; its pod "
    "has the loopback kubeconfig",
)

_POLICY_CONFIG_IN_POD: Final = posixpath.join(layout.POD_CONFIGS, POLICY_CONFIG)

CLUSTER_POLICY_CONTROLLER: Final = ProgramFlags(
    POLICY_CONTROLLER,
    (
        FlagRow(
            "config",
            _POLICY_CONFIG_IN_POD,
            "its port, its certificate and its kubeconfig",
            "it exits: no such file or directory",
        ),
        FlagRow(
            "kubeconfig",
            kubeconfig(CONTROLLER_MANAGER),
            "how it asks the API, like its neighbour",
            "it looks for a service account's token, which a static pod has not",
        ),
        FlagRow(
            "namespace",
            f"openshift-{CONTROLLER_MANAGER}",
            "where its lease and its events are kept",
            "a static pod on a standalone kubelet has no namespace to look up",
        ),
        VERBOSITY,
    ),
    "second container of the rendered kube-controller-manager pod",
)


def kube_controller_manager_pod(placement: PodPlacement) -> dict[str, Any]:
    component = Component(
        name=CONTROLLER_MANAGER,
        image=placement.image(CONTROLLER_MANAGER),
        flags=KUBE_CONTROLLER_MANAGER.command_line(placement),
        files=(placement.secrets, _own_kubeconfig()),
        probes=loopback_probes(CONTROLLER_MANAGER_PORT),
        cpu="200m",
        memory="256Mi",
        grace_seconds=_GRACE_SECONDS,
        command=placement.command(CONTROLLER_MANAGER),
        scratch=(_CERTIFICATE_DIRECTORY,) if placement.is_openshift else (),
    )
    others = (_policy_controller(placement),) if placement.is_openshift else ()
    return static_pod(component, *others, place=control_plane_place(placement, CONTROLLER_MANAGER))


def policy_controller_config() -> dict[str, Any]:
    """Return its config: a port with the certificate for localhost, where alone it is asked."""
    return {
        "apiVersion": "openshiftcontrolplane.config.openshift.io/v1",
        "kind": "OpenShiftControllerManagerConfig",
        "kubeClientConfig": {"kubeConfig": kubeconfig(CONTROLLER_MANAGER)},
        "servingInfo": {
            "bindAddress": f"0.0.0.0:{POLICY_PORT}",
            "bindNetwork": "tcp",
            "clientCA": bundle(Bundle.CLIENT_CA),
            "certFile": certificate(_SERVING),
            "keyFile": key(_SERVING),
        },
    }


def _policy_controller(placement: PodPlacement) -> Component:
    """Without it namespaces have no range of user ids, and pods that an SCC admits fail later."""
    return Component(
        name=POLICY_CONTROLLER,
        image=placement.image(POLICY_CONTROLLER),
        flags=CLUSTER_POLICY_CONTROLLER.command_line(placement),
        files=(
            placement.secrets,
            _own_kubeconfig(),
            HostFile("config", layout.NODE_CONFIGS, "DirectoryOrCreate", mount_path=layout.POD_CONFIGS),
        ),
        probes=loopback_probes(POLICY_PORT),
        cpu="10m",
        memory="200Mi",
        grace_seconds=_GRACE_SECONDS,
        command=(POLICY_CONTROLLER, "start"),
    )


def _own_kubeconfig() -> HostFile:
    return HostFile("kubeconfig", kubeconfig(CONTROLLER_MANAGER))


OPENSHIFT_NAMESPACE: Final = "openshift-kube-scheduler"
"""Where OpenShift's schedulers keep their lease; the default is kube-system."""
_LEASE_PLACE: Final = FlagRow(
    "leader-elect-resource-namespace",
    OPENSHIFT_NAMESPACE,
    "the namespace of the lease, the same as in the configuration that the operator gives to the masters' schedulers",
    "two schedulers lead at once until the pivot, each by a lease of its own, and nobody takes over this one's",
    on_openshift,
)

KUBE_SCHEDULER: Final = ProgramFlags(
    control_plane_pods.SCHEDULER,
    (*access_rows(control_plane_pods.SCHEDULER, control_plane_pods.SCHEDULER_PORT), _LEASE_PLACE),
    "the scheduler operator renders its pod with --config; leases there last 137 s, because the operator restarts "
    "schedulers often and a lost lease costs more than a slow takeover",
)


def kube_scheduler_pod(placement: PodPlacement) -> dict[str, Any]:
    component = Component(
        name=control_plane_pods.SCHEDULER,
        image=placement.image(control_plane_pods.SCHEDULER),
        flags=KUBE_SCHEDULER.command_line(placement),
        files=(HostFile("kubeconfig", kubeconfig(control_plane_pods.SCHEDULER)),),
        probes=loopback_probes(control_plane_pods.SCHEDULER_PORT),
        cpu="100m",
        memory="128Mi",
        grace_seconds=30,
        command=placement.command(control_plane_pods.SCHEDULER),
    )
    return static_pod(component, place=control_plane_place(placement, control_plane_pods.SCHEDULER))
