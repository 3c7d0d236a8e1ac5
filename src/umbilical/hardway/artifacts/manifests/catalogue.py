"""Every file of manifests by profile: what makes it, and what is told about it.

File names are in the order in which the objects can be created.
"""

from collections.abc import Mapping
from typing import Final

from umbilical.hardway.artifacts import crds, layout
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.artifacts.manifests import config_resources as config
from umbilical.hardway.artifacts.manifests import handoff, rbac
from umbilical.hardway.artifacts.manifests.config_resources import feature_gate
from umbilical.hardway.artifacts.manifests.coredns import coredns
from umbilical.hardway.artifacts.manifests.objects import STAGE, ManifestFile, add_objects, namespaces
from umbilical.hardway.artifacts.manifests.rbac import security_constraints
from umbilical.hardway.artifacts.tunnel import tunnel_objects
from umbilical.hardway.config.cluster import ClusterProfile
from umbilical.hardway.explain.entry import Topic, TopicKind
from umbilical.manifests.tree import PUBLIC_MODE, AssetTree

CRD_PREFIX: Final = "02-crd-"
TUNNEL: Final = ManifestFile(
    "08-tunnel.yaml",
    tunnel_objects,
    "The tunnel's namespace and its agents, one on every node. The Secret that they mount is applied by stage 10, "
    "because the bootstrap node makes its certificates.",
    "The scheduler and kubelets; agents dial the bootstrap node, and its kube-apiserver reaches pods through them.",
    "Until the pivot, kube-apiserver on the bootstrap node has no route to pods: calls of webhooks in pods time out.",
    "kubectl get daemonset -A -l openshift.io/bootstrap-only=true",
    "bootkube.sh applies the same objects where a feature gate asks for them, and deletes the namespace at its end.",
)
OPENSHIFT: Final = (
    ManifestFile(
        "01-namespaces.yaml",
        namespaces,
        "Namespaces that hold what operators take over. Those of static pods have run level 0 and may be privileged.",
        "Every object of a later file that lives in one of them.",
        'Creating such objects fails with "namespaces ... not found", and static pods cannot be mirrored.',
        "kubectl get namespaces -L openshift.io/run-level",
        "Each operator's render step writes its own namespaces into the bootstrap manifests.",
    ),
    ManifestFile(
        "03-rbac.yaml",
        rbac.openshift_rbac,
        "Lets new kubelets ask for certificates, kube-apiserver call kubelets, and the policy controllers work.",
        "kube-apiserver's authorizer.",
        'No CSR arrives from masters; logs and exec say "Forbidden (user=system:kube-apiserver, verb=get, '
        'resource=nodes, subresource=proxy)"; namespaces get no ranges of user ids.',
        "kubectl auth can-i create nodes --subresource=proxy --as=system:kube-apiserver",
        "The render steps of the kube-apiserver, controller-manager and machine-config operators write them.",
    ),
    ManifestFile(
        "04-feature-gate.yaml",
        feature_gate,
        "FeatureGate `cluster` with the gates of this version in its status.",
        "The version operator, every operator, and the machine-config render commands.",
        "The version operator sees a change of gates, shuts down and starts again without end; other operators say "
        '"missing desired version ... in featuregates.config.openshift.io/cluster".',
        "kubectl get featuregate cluster -o jsonpath='{.status.featureGates[*].version}'",
        "cluster-config-api's render step fills the status of the installer's manifest.",
    ),
    ManifestFile(
        "05-dns.yaml",
        config.dns,
        "The domain of the cluster, its own name included.",
        "The ingress operator and the machine-config operator.",
        "With the base domain alone, routes and nodes look for names that nobody serves, and ingress never converges.",
        "kubectl get dns.config.openshift.io cluster -o jsonpath='{.spec.baseDomain}'",
        "manifests/cluster-dns-02-config.yml.",
    ),
    ManifestFile(
        "05-infrastructure.yaml",
        config.infrastructure,
        "What the cluster runs on, its name, its API's addresses, and in how many replicas things run. The last part "
        "is status: creating the object drops it, so it is written by a second call.",
        "The etcd operator, the config operator, and whoever decides about replicas.",
        'The etcd operator says "ControlPlaneTopology was not set" and adds no member.',
        "kubectl get infrastructure cluster -o jsonpath='{.status.controlPlaneTopology}'",
        "manifests/cluster-infrastructure-02-config.yml, whose status cluster-bootstrap writes too.",
    ),
    ManifestFile(
        "05-ingress.yaml",
        config.ingress,
        "The domain under which routes are published.",
        "The ingress operator, the console, authentication.",
        "No default ingress controller can be made; console and authentication wait for their routes for ever.",
        "kubectl get ingress.config.openshift.io cluster -o jsonpath='{.spec.domain}'",
        "manifests/cluster-ingress-02-config.yml.",
    ),
    ManifestFile(
        "05-network-operator.yaml",
        config.operator_network,
        "The same networks once more, for the network operator itself. Its definition is none of the bootstrap's own, "
        "so it is taken from the release's network manifests.",
        "The network operator, which deploys OVN from it.",
        'The operator says "No networks.operator.openshift.io cluster found" until it has made one itself.',
        "kubectl get network.operator.openshift.io cluster -o jsonpath='{.spec.defaultNetwork.type}'",
        "Leaves it to the network operator.",
    ),
    ManifestFile(
        "05-network.yaml",
        config.network,
        "The networks of pods and services.",
        "The network operator, kube-apiserver's and controller-manager's operators.",
        "There is no pod network, so nodes stay NotReady with NetworkPluginNotReady.",
        "kubectl get network.config.openshift.io cluster -o jsonpath='{.spec.clusterNetwork}'",
        "manifests/cluster-network-02-config.yml.",
    ),
    ManifestFile(
        "05-proxy.yaml",
        config.proxy,
        "Says that there is no proxy to the outside.",
        "The machine-config operator, the network operator, everything that pulls or calls out.",
        "Those who look for it report an error instead of no proxy.",
        "kubectl get proxy cluster -o yaml",
        "manifests/cluster-proxy-01-config.yaml.",
    ),
    ManifestFile(
        "05-scheduler.yaml",
        config.scheduler,
        "Whether workloads may run on masters: they must where there are no workers.",
        "The scheduler's operator and the machine-config operator.",
        "Without workers, routers and the console find no node.",
        "kubectl get scheduler cluster -o jsonpath='{.spec.mastersSchedulable}'",
        "manifests/cluster-scheduler-02-config.yml.",
    ),
    ManifestFile(
        "05-security-constraints.yaml",
        security_constraints,
        "Security context constraints of the release, and the roles that allow their use.",
        "OpenShift's admission in the masters' kube-apiservers.",
        'Pods are refused with "unable to validate against any security context constraint".',
        "kubectl get scc",
        "kube-apiserver's render step copies the same files.",
    ),
    ManifestFile(
        "06-cluster-config.yaml",
        config.cluster_config,
        "The installer's configuration as a ConfigMap, without the pull secret.",
        "The etcd operator (how many members will come), the network operator, the machine-config operator.",
        'The network operator says "configmaps cluster-config-v1 not found".',
        "kubectl -n kube-system get configmap cluster-config-v1 -o jsonpath='{.data.install-config}'",
        "manifests/cluster-config.yaml.",
    ),
    ManifestFile(
        "06-etcd-endpoints.yaml",
        config.etcd_endpoints,
        "Tells where the bootstrap etcd is, by annotation and with no data: data is for members by their ids.",
        "The etcd operator.",
        "The operator looks for etcd on masters, where none runs yet, and members are never added.",
        "kubectl -n openshift-etcd get configmap etcd-endpoints -o yaml",
        "The etcd operator's render step writes it.",
    ),
    ManifestFile(
        "06-handoff-client-authorities.yaml",
        handoff.client_authorities,
        "Authorities of clients that exist before the pivot: administrator, kubelets, their bootstrap identity; and "
        "the public key of tokens that were signed by now.",
        "kube-apiserver's operator, which joins them to the client authorities of the masters.",
        "After the pivot the administrator's kubeconfig, every kubelet and every old token are refused: Unauthorized.",
        "kubectl -n openshift-config get configmap admin-kubeconfig-client-ca -o jsonpath='{.data.ca-bundle\\.crt}' | "
        "openssl x509 -noout -subject -enddate",
        "kube-apiserver's render step makes them from tls/.",
    ),
    ManifestFile(
        "06-handoff-controller-manager.yaml",
        handoff.controller_manager_operator,
        "The signer of kubelets' certificates, and the key that signs service accounts' tokens.",
        "controller-manager's operator.",
        "Kubelets get certificates of a signer that kube-apiserver does not know, and old tokens stop working.",
        "kubectl -n openshift-kube-controller-manager-operator get secret csr-signer-signer -o yaml",
        "controller-manager's render step makes them from tls/.",
    ),
    ManifestFile(
        "06-handoff-etcd.yaml",
        handoff.etcd_operator,
        "The PKI of the running bootstrap etcd: both signers, clients, the member's pairs, bundles, and the Service.",
        "The etcd operator.",
        "It makes signers of its own; masters' members and the bootstrap's then do not trust each other.",
        "kubectl -n openshift-etcd get secret etcd-signer -o jsonpath='{.data.tls\\.crt}' | base64 -d | "
        "openssl x509 -noout -fingerprint -sha256",
        "The etcd operator's render step makes the signers and these objects.",
    ),
    ManifestFile(
        "06-handoff-kube-apiserver.yaml",
        handoff.kube_apiserver_operator,
        "Six signers of kube-apiserver, with their dates as annotations, and the key for bound tokens.",
        "kube-apiserver's operator, which rotates them from here on.",
        "Without not-after it makes new ones at once, and nobody trusts the API that comes up on masters.",
        "kubectl -n openshift-kube-apiserver-operator get secret loadbalancer-serving-signer -o yaml",
        "kube-apiserver's render step makes them from tls/.",
    ),
    ManifestFile(
        "06-handoff-machine-config.yaml",
        handoff.machine_config_operator,
        "The machine config server's authority and certificate.",
        "The machine-config operator and its server; nodes that join later fetch their configuration from it.",
        "New nodes do not trust the server and wait in Ignition.",
        "kubectl -n openshift-machine-config-operator get secret machine-config-server-tls -o yaml",
        "manifests/machine-config-server-tls-secret.yaml and its neighbours.",
    ),
    ManifestFile(
        "06-kubeadmin.yaml",
        config.kubeadmin,
        "The hash (bcrypt) of the first administrator's password.",
        "OpenShift's OAuth server.",
        "Nobody can log in to the console; the administrator's kubeconfig still works.",
        "kubectl -n kube-system get secret kubeadmin",
        "openshift/99_kubeadmin-password-secret.yaml.",
    ),
    ManifestFile(
        "06-pull-secret.yaml",
        config.pull_secret,
        "Access to the registries of the release.",
        "The machine-config operator, which puts it on every node, and operators that import images.",
        "Images of nodes that join later cannot be pulled: unauthorized.",
        "kubectl -n openshift-config get secret pull-secret -o jsonpath='{.type}'",
        "manifests/openshift-config-secret-pull-secret.yaml.",
    ),
    ManifestFile(
        "07-cluster-version.yaml",
        config.cluster_version,
        "The cluster's id and update channel. No desiredUpdate: the version operator installs what it runs from.",
        "The version operator.",
        "With a desiredUpdate it tries to update a cluster that is not there yet; without the object it makes one "
        "with another id.",
        "kubectl get clusterversion version -o yaml",
        "manifests/cvo-overrides.yaml, which also keeps the version operator off some objects for the time being.",
    ),
    TUNNEL,
)
KUBERNETES: Final = (
    ManifestFile(
        "03-rbac.yaml",
        rbac.kubernetes_rbac,
        "Lets new kubelets ask for certificates, and kube-apiserver call kubelets.",
        "kube-apiserver's authorizer.",
        "No CSR arrives; logs and exec are forbidden to User system:kube-apiserver.",
        "kubectl auth can-i create certificatesigningrequests --as=system:bootstrapper",
        "kubeadm binds its own groups in the same way.",
    ),
    ManifestFile(
        "06-coredns.yaml",
        coredns,
        "CoreDNS with its Service at the tenth address of the service network.",
        "Every pod: kubelets write the Service's address into its resolv.conf.",
        "Names of Services do not resolve in pods.",
        "kubectl -n kube-system get deployment,service -l k8s-app=kube-dns",
        "OpenShift's DNS operator runs CoreDNS as a DaemonSet; kubeadm deploys what stands here.",
    ),
    TUNNEL,
)
FILES: Final[Mapping[ClusterProfile, tuple[ManifestFile, ...]]] = {
    ClusterProfile.OPENSHIFT: OPENSHIFT,
    ClusterProfile.KUBERNETES: KUBERNETES,
}
CRD_TOPIC: Final = Topic(
    TopicKind.FILE,
    f"{CRD_PREFIX}*.yaml",
    STAGE,
    "One custom resource definition of the release, the one variant of it for this profile and feature set.",
    "kube-apiserver: objects of its kind can be stored only afterwards.",
    'Objects say "no matches for kind". With all variants applied, the technology preview\'s wins by its name.',
    "kubectl get crd infrastructures.config.openshift.io -o jsonpath='{.metadata.annotations}'",
    "cluster-config-api's render step chooses the same: 22 in 4.18, and two of the version operator.",
)


def _topics() -> tuple[Topic, ...]:
    """One per name: a name that both profiles have is told about in OpenShift's words, which are the fuller ones."""
    found = {one.name: one.topic for one in (*KUBERNETES, *OPENSHIFT)}
    return (CRD_TOPIC, *(found[name] for name in sorted(found)))


TOPICS: Final = _topics()


def render_manifests(inputs: Inputs, made: AssetTree) -> AssetTree:
    """Make manifests/. Raises RenderError: UMB715 to UMB719, the release lacks something."""
    tree = AssetTree()
    if inputs.cluster.is_openshift:
        for crd in crds.bootstrap_crds(inputs.payload.crds):
            tree.add(f"{layout.MANIFESTS}/{CRD_PREFIX}{crd.name}.yaml", crd.content, PUBLIC_MODE)
    for file in FILES[inputs.cluster.profile]:
        objects = file.make(inputs)
        if objects:
            add_objects(tree, file.name, objects)
    return tree
