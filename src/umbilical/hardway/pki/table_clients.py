"""Rows of the certificate table: clients of the API, of kubelets and of aggregated API servers."""

from typing import Final

from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.hardway.pki.row import APISERVER, CLIENT_CA, PROXY, Life, Scope, client, signer
from umbilical.pki.control_plane_set import MASTERS

NODE_BOOTSTRAPPER: Final = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper"

CONTROL_PLANE: Final = (
    signer(
        "kube-apiserver-to-kubelet-signer",
        Life.YEAR,
        "Signs the client certificate with which kube-apiserver connects to kubelets.",
        "kubelets (in the client-CA bundle that is their clientCAFile)",
        "kubectl logs and exec get Unauthorized.",
        "The same; the operator gets it as kube-apiserver-to-kubelet-signer.",
    ),
    client(
        "kube-apiserver-to-kubelet-client",
        "kube-apiserver-to-kubelet-signer",
        Life.YEAR,
        APISERVER[0],
        (APISERVER[1],),
        CLIENT_CA,
        "The client certificate of kube-apiserver for kubelets: for logs, exec and port-forward.",
        "kube-apiserver (--kubelet-client-certificate); a ClusterRoleBinding must allow its name nodes/proxy",
        "kubectl logs: Forbidden (user=system:kube-apiserver, verb=get, resource=nodes, subresource=proxy).",
        "The same, with ClusterRole kube-apiserver bound to this user.",
    ),
    signer(
        "kube-control-plane-signer",
        Life.YEAR,
        "Signs the client certificates of controller-manager, scheduler, and kube-proxy (kubernetes profile).",
        "kube-apiserver (in its client-CA bundle)",
        "controller-manager and scheduler get Unauthorized and never become leader.",
        "The same; the operator takes it over.",
    ),
    client(
        "kube-control-plane-kube-controller-manager-client",
        "kube-control-plane-signer",
        Life.YEAR,
        "system:kube-controller-manager",
        # A kube-apiserver that has just started has no roles yet.
        (MASTERS,),
        CLIENT_CA,
        "The client certificate of kube-controller-manager. It is in group system:masters, because roles do not exist "
        "yet at its first request.",
        "kubeconfig kube-controller-manager",
        "No CSR is signed, no token is made, no Endpoints are written.",
        "system:admin in system:masters on the bootstrap node; ours has the component's own name.",
    ),
    client(
        "kube-control-plane-kube-scheduler-client",
        "kube-control-plane-signer",
        Life.YEAR,
        "system:kube-scheduler",
        (MASTERS,),
        CLIENT_CA,
        "The client certificate of kube-scheduler. It is in group system:masters, because roles do not exist yet at "
        "its first request.",
        "kubeconfig kube-scheduler",
        "Pods stay Pending, without an event.",
        "system:admin in system:masters on the bootstrap node; ours has the component's own name.",
    ),
    client(
        "kube-proxy",
        "kube-control-plane-signer",
        Life.YEAR,
        "system:kube-proxy",
        (),
        CLIENT_CA,
        "The client certificate of kube-proxy. Kubernetes itself binds this user to system:node-proxier.",
        "kubeconfig kube-proxy",
        "Cluster IPs do not work on any node: dial tcp 172.30.0.1:443: i/o timeout.",
        "None: OpenShift's network operator implements Services.",
        scope=Scope.KUBERNETES,
    ),
)

NODES: Final = (
    signer(
        "kubelet-signer",
        Life.SHORT,
        "Signs the client and serving certificates of kubelets after their CSRs are approved. It is short-lived: an "
        "OpenShift operator replaces it. For a kubernetes cluster that runs longer, raise shortHours.",
        "kube-controller-manager (--cluster-signing-cert-file and key); kube-apiserver, to verify kubelets",
        "CSRs stay Approved and never become Issued.",
        "One day; the operators get it as csr-signer-signer and csr-controller-ca.",
    ),
    signer(
        "kubelet-bootstrap-kubeconfig-signer",
        Life.TEN_YEARS,
        "Signs the shared client certificate with which new nodes request their first own certificate.",
        "kube-apiserver (in its client-CA bundle)",
        "New kubelets get Unauthorized and create no CSR.",
        "The same; the operator gets it as openshift-config-managed/kubelet-bootstrap-kubeconfig.",
    ),
    client(
        "kubelet-client",
        "kubelet-bootstrap-kubeconfig-signer",
        Life.TEN_YEARS,
        NODE_BOOTSTRAPPER,
        ("system:serviceaccounts:openshift-machine-config-operator", "system:serviceaccounts"),
        CLIENT_CA,
        "The client certificate of a kubelet that has no certificate of its own yet; user: service account "
        "node-bootstrapper.",
        "kubeconfig kubelet-bootstrap, on each node as /etc/kubernetes/kubeconfig",
        "Nodes create no CSR and never join.",
        "The same; the machine approver accepts new nodes' CSRs from this requester.",
        scope=Scope.OPENSHIFT,
    ),
    client(
        "kubelet-client",
        "kubelet-bootstrap-kubeconfig-signer",
        Life.TEN_YEARS,
        "system:bootstrapper",
        ("system:bootstrappers",),
        CLIENT_CA,
        "The client certificate of a kubelet that has no certificate of its own yet; its user is bound to "
        "system:node-bootstrapper.",
        "kubeconfig kubelet-bootstrap, on each node as /etc/kubernetes/kubeconfig",
        "Nodes create no CSR and never join.",
        "kubeadm uses a token of the group system:bootstrappers instead.",
        scope=Scope.KUBERNETES,
    ),
    signer(
        "aggregator-signer",
        Life.SHORT,
        "Signs the client certificate with which kube-apiserver connects to aggregated API servers.",
        "kube-apiserver (--requestheader-client-ca-file), and through it every aggregated API server",
        "APIServices return Unauthorized.",
        "One day; the operator gets it as aggregator-client-signer.",
    ),
    client(
        "aggregator-client",
        "aggregator-signer",
        Life.SHORT,
        PROXY[0],
        (PROXY[1],),
        Bundle.AGGREGATOR_CA.value,
        "The client certificate with which kube-apiserver forwards requests to aggregated API servers.",
        "kube-apiserver (--proxy-client-cert-file); its name must be in --requestheader-allowed-names",
        "Aggregated API servers treat users as anonymous: x509: subject with cn=... is not in the allowed list.",
        "The same; one day.",
    ),
    signer(
        "aggregator-ca",
        Life.SHORT,
        "An older signer of proxy clients that the installer still makes.",
        "only apiserver-proxy",
        "Nothing breaks; it is included only because the installer makes it.",
        "One day, OU=bootkube.",
        scope=Scope.OPENSHIFT,
    ),
    client(
        "apiserver-proxy",
        "aggregator-ca",
        Life.SHORT,
        PROXY[0],
        (PROXY[1],),
        "aggregator-ca",
        "The proxy client certificate of the older signer aggregator-ca.",
        "nothing: aggregator-client replaced it",
        "Nothing breaks; it is included only because the installer makes it.",
        "One day.",
        scope=Scope.OPENSHIFT,
    ),
)
