"""Every manifest file by profile: its renderer and its explanation.

The order of the file names is the order in which the objects can be created.
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
    "The tunnel's namespace and its agents, one on every node. Stage 10 applies the Secret that they mount, because "
    "the bootstrap node makes its certificates.",
    "The scheduler and kubelets; agents dial the bootstrap node, and its kube-apiserver reaches pods through them.",
    "Until the pivot, kube-apiserver on the bootstrap node has no route to pods: calls to webhooks in pods time out.",
    "kubectl get daemonset -A -l openshift.io/bootstrap-only=true",
    "bootkube.sh applies the same objects if a feature gate is on, and deletes the namespace when it ends.",
)
OPENSHIFT: Final = (
    ManifestFile(
        "01-namespaces.yaml",
        namespaces,
        "Namespaces of the objects that operators take over. Those of static pods have run level 0 and are privileged.",
        "All later manifest files with objects in these namespaces.",
        'Creating such objects fails with "namespaces ... not found", and static pods get no mirror pods.',
        "kubectl get namespaces -L openshift.io/run-level",
        "Each operator's render step writes its own namespaces into the bootstrap manifests.",
    ),
    ManifestFile(
        "03-rbac.yaml",
        rbac.openshift_rbac,
        "Allows new kubelets to create CSRs, kube-apiserver to call kubelets, and the policy controllers to work.",
        "kube-apiserver's authorizer.",
        'Masters create no CSRs; logs and exec fail with "Forbidden (user=system:kube-apiserver, verb=get, '
        'resource=nodes, subresource=proxy)"; namespaces get no UID ranges.',
        "kubectl auth can-i create nodes --subresource=proxy --as=system:kube-apiserver",
        "The render steps of the kube-apiserver, controller-manager and machine-config operators write them.",
    ),
    ManifestFile(
        "04-feature-gate.yaml",
        feature_gate,
        "FeatureGate `cluster` with the gates of this version in its status.",
        "The version operator, every operator, and the machine-config render commands.",
        "The version operator detects changed gates and restarts without end; other operators report "
        '"missing desired version ... in featuregates.config.openshift.io/cluster".',
        "kubectl get featuregate cluster -o jsonpath='{.status.featureGates[*].version}'",
        "cluster-config-api's render step fills the status of the installer's manifest.",
    ),
    ManifestFile(
        "05-dns.yaml",
        config.dns,
        "The domain of the cluster, including the cluster's name.",
        "The ingress operator and the machine-config operator.",
        "With the base domain only, routes and nodes use names that do not resolve, and ingress never converges.",
        "kubectl get dns.config.openshift.io cluster -o jsonpath='{.spec.baseDomain}'",
        "manifests/cluster-dns-02-config.yml.",
    ),
    ManifestFile(
        "05-infrastructure.yaml",
        config.infrastructure,
        "Platform, infrastructure name, API URLs and topologies. The topologies are in the status, which is dropped "
        "when the object is created and is written by a second request.",
        "The etcd operator, the config operator, and all operators that choose a number of replicas.",
        'The etcd operator reports "ControlPlaneTopology was not set" and adds no member.',
        "kubectl get infrastructure cluster -o jsonpath='{.status.controlPlaneTopology}'",
        "manifests/cluster-infrastructure-02-config.yml, whose status cluster-bootstrap writes too.",
    ),
    ManifestFile(
        "05-ingress.yaml",
        config.ingress,
        "The domain under which routes are published.",
        "The ingress operator, the console, authentication.",
        "The default ingress controller cannot be created; console and authentication wait for their routes.",
        "kubectl get ingress.config.openshift.io cluster -o jsonpath='{.spec.domain}'",
        "manifests/cluster-ingress-02-config.yml.",
    ),
    ManifestFile(
        "05-network-operator.yaml",
        config.operator_network,
        "The same networks as in 05-network.yaml, for the network operator. Its CRD is not marked as required for the "
        "bootstrap, so it is taken from the release's network manifests.",
        "The network operator, which deploys OVN from it.",
        'The operator reports "No networks.operator.openshift.io cluster found" until it has created the object.',
        "kubectl get network.operator.openshift.io cluster -o jsonpath='{.spec.defaultNetwork.type}'",
        "None: the network operator creates it.",
    ),
    ManifestFile(
        "05-network.yaml",
        config.network,
        "The pod network and the service network.",
        "The network operator, and the operators of kube-apiserver and controller-manager.",
        "There is no pod network, and nodes stay NotReady with NetworkPluginNotReady.",
        "kubectl get network.config.openshift.io cluster -o jsonpath='{.spec.clusterNetwork}'",
        "manifests/cluster-network-02-config.yml.",
    ),
    ManifestFile(
        "05-proxy.yaml",
        config.proxy,
        "An empty configuration of the outgoing HTTP proxy.",
        "The machine-config operator, the network operator, and all components with outgoing connections.",
        "They report that the object is missing.",
        "kubectl get proxy cluster -o yaml",
        "manifests/cluster-proxy-01-config.yaml.",
    ),
    ManifestFile(
        "05-scheduler.yaml",
        config.scheduler,
        "Whether workloads may run on masters; they must if there are no workers.",
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
        'The API rejects pods: "unable to validate against any security context constraint".',
        "kubectl get scc",
        "kube-apiserver's render step copies the same files.",
    ),
    ManifestFile(
        "06-cluster-config.yaml",
        config.cluster_config,
        "The install-config as a ConfigMap, without the pull secret.",
        "The etcd operator (for the number of members), the network operator, the machine-config operator.",
        'The network operator reports "configmaps cluster-config-v1 not found".',
        "kubectl -n kube-system get configmap cluster-config-v1 -o jsonpath='{.data.install-config}'",
        "manifests/cluster-config.yaml.",
    ),
    ManifestFile(
        "06-etcd-endpoints.yaml",
        config.etcd_endpoints,
        "The address of the bootstrap etcd, in an annotation. It has no data, which is for members by id.",
        "The etcd operator.",
        "The operator searches for etcd on masters, where none runs yet, and never adds members.",
        "kubectl -n openshift-etcd get configmap etcd-endpoints -o yaml",
        "The etcd operator's render step writes it.",
    ),
    ManifestFile(
        "06-handoff-client-authorities.yaml",
        handoff.client_authorities,
        "CAs of client certificates from before the pivot (administrator, kubelets, their bootstrap certificate), and "
        "the public key for existing tokens.",
        "kube-apiserver's operator, which adds them to the client CAs of the masters.",
        "After the pivot the administrator, every kubelet and every old token get Unauthorized.",
        "kubectl -n openshift-config get configmap admin-kubeconfig-client-ca -o jsonpath='{.data.ca-bundle\\.crt}' | "
        "openssl x509 -noout -subject -enddate",
        "kube-apiserver's render step makes them from tls/.",
    ),
    ManifestFile(
        "06-handoff-controller-manager.yaml",
        handoff.controller_manager_operator,
        "The signer of kubelets' certificates, and the key that signs service account tokens.",
        "controller-manager's operator.",
        "Kubelets get certificates of a signer that kube-apiserver does not trust, and old tokens stop working.",
        "kubectl -n openshift-kube-controller-manager-operator get secret csr-signer-signer -o yaml",
        "controller-manager's render step makes them from tls/.",
    ),
    ManifestFile(
        "06-handoff-etcd.yaml",
        handoff.etcd_operator,
        "The PKI of the bootstrap etcd: both signers, clients, the member's pairs, bundles, and the Service.",
        "The etcd operator.",
        "The operator makes its own signers, and the members on masters and the bootstrap member reject each other.",
        "kubectl -n openshift-etcd get secret etcd-signer -o jsonpath='{.data.tls\\.crt}' | base64 -d | "
        "openssl x509 -noout -fingerprint -sha256",
        "The etcd operator's render step makes the signers and these objects.",
    ),
    ManifestFile(
        "06-handoff-kube-apiserver.yaml",
        handoff.kube_apiserver_operator,
        "Six signers of kube-apiserver with their dates as annotations, and the key for bound tokens.",
        "kube-apiserver's operator, which rotates them later.",
        "Without the not-after annotation it makes new ones at once, and clients reject the API servers on masters.",
        "kubectl -n openshift-kube-apiserver-operator get secret loadbalancer-serving-signer -o yaml",
        "kube-apiserver's render step makes them from tls/.",
    ),
    ManifestFile(
        "06-handoff-machine-config.yaml",
        handoff.machine_config_operator,
        "The CA and the serving certificate of the machine-config server.",
        "The machine-config operator and its server; nodes that join later fetch their configuration from it.",
        "New nodes reject the server and wait in Ignition.",
        "kubectl -n openshift-machine-config-operator get secret machine-config-server-tls -o yaml",
        "manifests/machine-config-server-tls-secret.yaml and related files.",
    ),
    ManifestFile(
        "06-kubeadmin.yaml",
        config.kubeadmin,
        "The bcrypt hash of kubeadmin's password.",
        "OpenShift's OAuth server.",
        "Users cannot log in to the console; the administrator's kubeconfig still works.",
        "kubectl -n kube-system get secret kubeadmin",
        "openshift/99_kubeadmin-password-secret.yaml.",
    ),
    ManifestFile(
        "06-pull-secret.yaml",
        config.pull_secret,
        "Credentials for the registries of the release.",
        "The machine-config operator, which writes it to every node, and operators that import images.",
        "Nodes that join later cannot pull images: unauthorized.",
        "kubectl -n openshift-config get secret pull-secret -o jsonpath='{.type}'",
        "manifests/openshift-config-secret-pull-secret.yaml.",
    ),
    ManifestFile(
        "07-cluster-version.yaml",
        config.cluster_version,
        "The cluster's id and update channel. It has no desiredUpdate: the version operator installs its own release.",
        "The version operator.",
        "With a desiredUpdate the operator tries to update a cluster that is not installed; without the object it "
        "creates one with another id.",
        "kubectl get clusterversion version -o yaml",
        "manifests/cvo-overrides.yaml, which also makes the version operator ignore some objects during the bootstrap.",
    ),
    TUNNEL,
)
KUBERNETES: Final = (
    ManifestFile(
        "03-rbac.yaml",
        rbac.kubernetes_rbac,
        "Allows new kubelets to create CSRs, and kube-apiserver to call kubelets.",
        "kube-apiserver's authorizer.",
        "Kubelets create no CSRs; logs and exec are Forbidden for user system:kube-apiserver.",
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
        "OpenShift's DNS operator runs CoreDNS as a DaemonSet; kubeadm deploys the same objects as we do.",
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
    "One CRD of the release, in the variant for this cluster profile and feature set.",
    "kube-apiserver, which can store objects of this kind only after the CRD is applied.",
    'Applying objects fails: "no matches for kind". If all variants are applied, the technology preview\'s remains.',
    "kubectl get crd infrastructures.config.openshift.io -o jsonpath='{.metadata.annotations}'",
    "cluster-config-api's render step chooses the same: 22 in 4.18, and two of the version operator.",
)


def _topics() -> tuple[Topic, ...]:
    """Return one topic per name; for a name in both profiles OpenShift's explanation, which has more details."""
    found = {one.name: one.topic for one in (*KUBERNETES, *OPENSHIFT)}
    return (CRD_TOPIC, *(found[name] for name in sorted(found)))


TOPICS: Final = _topics()


def render_manifests(inputs: Inputs, made: AssetTree) -> AssetTree:
    """Render manifests/. Raises RenderError: UMB715 to UMB719, the release lacks something."""
    tree = AssetTree()
    if inputs.cluster.is_openshift:
        for crd in crds.bootstrap_crds(inputs.payload.crds):
            tree.add(f"{layout.MANIFESTS}/{CRD_PREFIX}{crd.name}.yaml", crd.content, PUBLIC_MODE)
    for file in FILES[inputs.cluster.profile]:
        objects = file.make(inputs)
        if objects:
            add_objects(tree, file.name, objects)
    return tree
