"""Rows of the hard way's certificate table: who asks the API, kubelets and aggregated API servers something."""

from dataclasses import replace
from typing import Final

from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.hardway.pki.row import APISERVER, CLIENT_CA, PROXY, Life, Scope, Words, client, signer
from umbilical.pki.control_plane_set import MASTERS

NODE_BOOTSTRAPPER: Final = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper"

CONTROL_PLANE: Final = (
    signer(
        "kube-apiserver-to-kubelet-signer",
        Life.YEAR,
        Words(
            "Signs by what kubelets know kube-apiserver.",
            "kubelets (in the client-CA bundle that is their clientCAFile)",
            "kubectl logs and exec answer Unauthorized.",
            "The same; handed to the operator as kube-apiserver-to-kubelet-signer.",
        ),
    ),
    client(
        "kube-apiserver-to-kubelet-client",
        "kube-apiserver-to-kubelet-signer",
        Life.YEAR,
        APISERVER[0],
        (APISERVER[1],),
        Words(
            "What kube-apiserver shows to a kubelet when it fetches logs or opens a shell.",
            "kube-apiserver (--kubelet-client-certificate); a ClusterRoleBinding must allow its name nodes/proxy",
            "kubectl logs: Forbidden (user=system:kube-apiserver, verb=get, resource=nodes, subresource=proxy).",
            "The same, with ClusterRole kube-apiserver bound to this user.",
        ),
        CLIENT_CA,
    ),
    signer(
        "kube-control-plane-signer",
        Life.YEAR,
        Words(
            "Signs the clients of the control plane: controller-manager, scheduler, and kube-proxy where it is ours.",
            "kube-apiserver (in its client-CA bundle)",
            "controller-manager and scheduler are Unauthorized and never lead.",
            "The same; handed to the operator.",
        ),
    ),
    client(
        "kube-control-plane-kube-controller-manager-client",
        "kube-control-plane-signer",
        Life.YEAR,
        "system:kube-controller-manager",
        # A kube-apiserver that has just started knows no roles yet.
        (MASTERS,),
        Words(
            "Who kube-controller-manager is, in system:masters because roles do not exist yet when it first asks.",
            "kubeconfig kube-controller-manager",
            "No node gets a certificate, no token is made, no endpoint is written.",
            "system:admin in system:masters on the bootstrap node; ours keeps the component's own name.",
        ),
        CLIENT_CA,
    ),
    client(
        "kube-control-plane-kube-scheduler-client",
        "kube-control-plane-signer",
        Life.YEAR,
        "system:kube-scheduler",
        (MASTERS,),
        Words(
            "Who kube-scheduler is, in system:masters because roles do not exist yet when it first asks.",
            "kubeconfig kube-scheduler",
            "Pods stay Pending, without an event.",
            "system:admin in system:masters on the bootstrap node; ours keeps the component's own name.",
        ),
        CLIENT_CA,
    ),
    replace(
        client(
            "kube-proxy",
            "kube-control-plane-signer",
            Life.YEAR,
            "system:kube-proxy",
            (),
            Words(
                "Who kube-proxy is. Kubernetes itself binds this user to system:node-proxier.",
                "kubeconfig kube-proxy",
                "Services have no address on any node: dial tcp 172.30.0.1:443: i/o timeout.",
                "None: OpenShift's network operator implements services.",
            ),
            CLIENT_CA,
        ),
        scope=Scope.KUBERNETES,
    ),
)

NODES: Final = (
    signer(
        "kubelet-signer",
        Life.SHORT,
        Words(
            "Signs every kubelet's certificates, client and serving, when their requests are approved. Short-lived: "
            "an operator of OpenShift replaces it; for a kubernetes cluster that is to last, raise shortHours.",
            "kube-controller-manager (--cluster-signing-cert-file and key); kube-apiserver, to know kubelets",
            "Certificate requests stay Approved and never become Issued.",
            "One day; handed on as csr-signer-signer and csr-controller-ca.",
        ),
    ),
    signer(
        "kubelet-bootstrap-kubeconfig-signer",
        Life.TEN_YEARS,
        Words(
            "Signs the one identity by which every new node asks for its first certificate.",
            "kube-apiserver (in its client-CA bundle)",
            "New kubelets are Unauthorized and file no certificate request.",
            "The same; handed on as openshift-config-managed/kubelet-bootstrap-kubeconfig.",
        ),
    ),
    replace(
        client(
            "kubelet-client",
            "kubelet-bootstrap-kubeconfig-signer",
            Life.TEN_YEARS,
            NODE_BOOTSTRAPPER,
            ("system:serviceaccounts:openshift-machine-config-operator", "system:serviceaccounts"),
            Words(
                "Who a kubelet is before it has a certificate of its own: the service account node-bootstrapper.",
                "kubeconfig kubelet-bootstrap, on each node as /etc/kubernetes/kubeconfig",
                "Nodes file no certificate request, and never appear.",
                "The same; the machine approver knows new nodes by this requester.",
            ),
            CLIENT_CA,
        ),
        scope=Scope.OPENSHIFT,
    ),
    replace(
        client(
            "kubelet-client",
            "kubelet-bootstrap-kubeconfig-signer",
            Life.TEN_YEARS,
            "system:bootstrapper",
            ("system:bootstrappers",),
            Words(
                "Who a kubelet is before it has a certificate of its own; bound to system:node-bootstrapper.",
                "kubeconfig kubelet-bootstrap, on each node as /etc/kubernetes/kubeconfig",
                "Nodes file no certificate request, and never appear.",
                "kubeadm uses a token of the group system:bootstrappers instead.",
            ),
            CLIENT_CA,
        ),
        scope=Scope.KUBERNETES,
    ),
    signer(
        "aggregator-signer",
        Life.SHORT,
        Words(
            "Signs by what aggregated API servers know kube-apiserver.",
            "kube-apiserver (--requestheader-client-ca-file), and through it every aggregated API server",
            "APIServices answer Unauthorized.",
            "One day; handed on as aggregator-client-signer.",
        ),
    ),
    client(
        "aggregator-client",
        "aggregator-signer",
        Life.SHORT,
        PROXY[0],
        (PROXY[1],),
        Words(
            "What kube-apiserver shows when it passes a request on to an aggregated API server.",
            "kube-apiserver (--proxy-client-cert-file); its name must be in --requestheader-allowed-names",
            "Aggregated APIs see an anonymous user: x509: subject with cn=... is not in the allowed list.",
            "The same; one day.",
        ),
        Bundle.AGGREGATOR_CA.value,
    ),
    signer(
        "aggregator-ca",
        Life.SHORT,
        Words(
            "An older signer of proxy clients, that the installer still makes.",
            "nobody but apiserver-proxy",
            "Nothing breaks; it is here so that the set is complete.",
            "One day, OU=bootkube.",
        ),
        Scope.OPENSHIFT,
    ),
    replace(
        client(
            "apiserver-proxy",
            "aggregator-ca",
            Life.SHORT,
            PROXY[0],
            (PROXY[1],),
            Words(
                "The proxy client of that older signer.",
                "nobody: aggregator-client took its place",
                "Nothing breaks; it is here so that the set is complete.",
                "One day.",
            ),
            "aggregator-ca",
        ),
        scope=Scope.OPENSHIFT,
    ),
)
