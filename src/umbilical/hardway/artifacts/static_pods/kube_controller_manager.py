"""kube-controller-manager and kube-scheduler: on the bootstrap node, and in the kubernetes profile on every master.

In OpenShift the pod of kube-controller-manager also runs cluster-policy-controller, which gives UID ranges to
namespaces.
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
from umbilical.manifests.static_pod import HostFile, PodComponent, static_pod

POLICY_CONTROLLER: Final = "cluster-policy-controller"
POLICY_PORT: Final = 10357
POLICY_CONFIG: Final = "cluster-policy-controller-config.yaml"
_SIGNER: Final = "kubelet-signer"
_SERVING: Final = "kube-apiserver-localhost-server"
_CERTIFICATE_DIRECTORY: Final = "/var/run/kubernetes"
_GRACE_SECONDS: Final = 30


def access_rows(program: str, port: int) -> tuple[FlagRow, ...]:
    """Return the flags that controller-manager and scheduler share: access to the API, and to their own port."""
    path = kubeconfig(program)
    return (
        FlagRow(
            "kubeconfig",
            path,
            "how it connects to the API: by localhost, so that it needs neither load balancer nor DNS",
            "it exits: invalid configuration: no configuration has been provided",
        ),
        FlagRow("authentication-kubeconfig", path, "how it authenticates its clients", "all clients are anonymous"),
        FlagRow("authorization-kubeconfig", path, "how it authorizes its clients", "its metrics cannot be read"),
        FlagRow(
            "authentication-tolerate-lookup-failure",
            "true",
            "start even if the ConfigMap with the authentication settings does not exist yet",
            "it exits and restarts only after the kubelet's back-off",
        ),
        FlagRow(
            "bind-address",
            lambda placement: placement.every_address,
            "listen on all addresses: the pipeline checks its health from outside",
            "with loopback only, its health can be checked only on the node",
        ),
        FlagRow("secure-port", str(port), "port of its health endpoint", "the kubelet's probe fails"),
        FlagRow(
            "leader-elect",
            "true",
            "only one instance is active; at the pivot a master's takes over from the bootstrap node's",
            "several instances are active and undo each other's changes",
        ),
        FlagRow(
            "leader-elect-resource-lock",
            "leases",
            "type of the object that holds the lock",
            "nothing breaks: it is the default, and other types were removed",
        ),
        # A leader that cannot renew in time exits, so a busy machine needs long durations; but after the pivot it
        # takes one lease duration until the next leader is active.
        FlagRow(
            "leader-elect-lease-duration",
            by_profile(openshift="15s", kubernetes="30s"),
            "how long the others wait after the leader's last renewal; the pivot takes at least that long",
            "if it is minutes, no instance is active for minutes after the pivot",
        ),
        FlagRow(
            "leader-elect-renew-deadline",
            by_profile(openshift="12s", kubernetes="25s"),
            "how long the leader tries to renew before it exits; shorter than the lease",
            "it exits: LeaseDuration must be greater than RenewDeadline",
        ),
        FlagRow("leader-elect-retry-period", "3s", "interval between attempts to renew", "takeovers take longer"),
        VERBOSITY,
    )


_KEYS: Final[tuple[FlagRow, ...]] = (
    FlagRow(
        "use-service-account-credentials",
        "true",
        "each controller has its own service account and roles",
        "all controllers use the one client certificate",
    ),
    FlagRow(
        "service-account-private-key-file",
        key("service-account"),
        "key that signs tokens in Secrets; kube-apiserver verifies them with the public key",
        "such tokens are empty or rejected",
    ),
    FlagRow(
        "root-ca-file",
        bundle(Bundle.SERVER_CA),
        "CA bundle with which pods verify the API (ConfigMap kube-root-ca.crt): all signers of its certificates",
        "in pods: x509: certificate signed by unknown authority",
    ),
    FlagRow(
        "cluster-signing-cert-file",
        certificate(_SIGNER),
        "signer of kubelets' CSRs; kube-apiserver trusts it for client and for serving certificates",
        "approved CSRs get no certificate",
    ),
    FlagRow(
        "cluster-signing-key-file",
        key(_SIGNER),
        "key of --cluster-signing-cert-file",
        "approved CSRs get no certificate",
    ),
    FlagRow(
        "cluster-signing-duration",
        "720h",
        "lifetime of kubelets' certificates, limited by that of the signer; kubelets renew them in time",
        "the default is one year: a stolen certificate is valid for long",
    ),
)

_NETWORKS: Final[tuple[FlagRow, ...]] = (
    FlagRow(
        "cluster-cidr",
        lambda placement: str(placement.cluster.networks.pods),
        "the pod network, for controllers that assign node CIDRs or routes",
        "such a controller exits: clusterCIDR is required",
    ),
    FlagRow(
        "service-cluster-ip-range",
        lambda placement: str(placement.cluster.networks.services),
        "the service network, which must not overlap the pod network",
        "an overlap is not detected",
    ),
    FlagRow(
        "allocate-node-cidrs",
        "false",
        "node CIDRs come from OpenShift's network plugin, and from cluster.yaml in the kubernetes profile",
        "every node gets a /24 regardless of hostPrefix, in conflict with the network plugin",
    ),
    FlagRow(
        "controllers",
        "*,-ttl,-bootstrapsigner,-tokencleaner",
        "the controllers that OpenShift runs; bootstrap tokens are not used there",
        "nodes get needless annotations",
        on_openshift,
    ),
    FlagRow(
        "cert-dir",
        _CERTIFICATE_DIRECTORY,
        "directory of the self-signed certificate for its own port; it is deleted with the pod",
        "nothing breaks: it keeps the certificate in memory; the operator's pods have a directory",
        on_openshift,
    ),
)

_PACE: Final[tuple[FlagRow, ...]] = (
    FlagRow(
        "kube-api-qps",
        "200",
        "requests per second; at every start, and so at the pivot, forty controllers request tokens at the same time",
        "with the default of twenty, the controllers start seven seconds later",
        on_kubernetes,
    ),
    FlagRow("kube-api-burst", "400", "requests in a burst", "as with --kube-api-qps", on_kubernetes),
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
            "file with its port, certificate and kubeconfig",
            "it exits: no such file or directory",
        ),
        FlagRow(
            "kubeconfig",
            kubeconfig(CONTROLLER_MANAGER),
            "how it connects to the API, the same as kube-controller-manager",
            "it searches for a service account token, which static pods do not have",
        ),
        FlagRow(
            "namespace",
            f"openshift-{CONTROLLER_MANAGER}",
            "namespace of its lease and its events",
            "it cannot find its namespace, because a static pod of a standalone kubelet has none",
        ),
        VERBOSITY,
    ),
    "second container of the rendered kube-controller-manager pod",
)


def kube_controller_manager_pod(placement: PodPlacement) -> dict[str, Any]:
    component = PodComponent(
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
    """Return its configuration; its serving certificate is the one for localhost, from where it is probed."""
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


def _policy_controller(placement: PodPlacement) -> PodComponent:
    """Return its container. Without it namespaces have no UID range, and SCC admission rejects pods later."""
    return PodComponent(
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
"""Namespace of the lease of OpenShift's schedulers; the default is kube-system."""
_LEASE_PLACE: Final = FlagRow(
    "leader-elect-resource-namespace",
    OPENSHIFT_NAMESPACE,
    "namespace of the lease, the same as in the operator's configuration of the masters' schedulers",
    "two schedulers are active until the pivot, each with its own lease",
    on_openshift,
)

KUBE_SCHEDULER: Final = ProgramFlags(
    control_plane_pods.SCHEDULER,
    (*access_rows(control_plane_pods.SCHEDULER, control_plane_pods.SCHEDULER_PORT), _LEASE_PLACE),
    "the scheduler operator renders its pod with --config; its lease duration is 137 s, because the operator restarts "
    "schedulers often, and a lost lease costs more than a slow takeover",
)


def kube_scheduler_pod(placement: PodPlacement) -> dict[str, Any]:
    component = PodComponent(
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
