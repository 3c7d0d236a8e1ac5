"""Rows of the certificate table: servers of the API and of machine configuration, and the administrator."""

from typing import Final

from umbilical.hardway.pki.row import (
    APISERVER,
    BOTH,
    CLIENT_CA,
    SERVER,
    SERVER_CA,
    CertificateNames,
    CertificateRow,
    Life,
    RowText,
    Scope,
    signer,
)
from umbilical.pki.control_plane_set import MASTERS, PkiKind


def _apiserver(id_: str, signed_by: str, names: CertificateNames, *words: str) -> CertificateRow:
    (name, group), text, trust = APISERVER, RowText(*words), (SERVER_CA,)
    return CertificateRow(
        id_, PkiKind.LEAF, name, text, (group,), signed_by, SERVER, names, Life.SHORT, verified_by=trust
    )


MACHINE_CONFIG: Final = (
    CertificateRow(
        "root-ca",
        PkiKind.AUTHORITY,
        "root-ca",
        RowText(
            "The signer of the machine-config server and the journal gateway. Despite its name it signs nothing else.",
            "nodes that fetch their configuration, kube-system/root-ca, the machine-config operator",
            "New nodes reject the machine-config server: x509: certificate signed by unknown authority.",
            "tls/root-ca.crt, ten years.",
        ),
        scope=Scope.OPENSHIFT,
    ),
    CertificateRow(
        "machine-config-server",
        PkiKind.LEAF,
        "system:machine-config-server",
        RowText(
            "The serving certificate of the machine-config server on port 22623.",
            "the machine-config server, through openshift-machine-config-operator/machine-config-server-tls",
            "Machines that join later get no configuration.",
            "Signed by root-ca for api-int and the virtual addresses, ten years.",
        ),
        signer="root-ca",
        usages=SERVER,
        names=CertificateNames.MACHINE_CONFIG,
        scope=Scope.OPENSHIFT,
        verified_by=("root-ca",),
    ),
    CertificateRow(
        "journal-gatewayd",
        PkiKind.LEAF,
        "journal-gatewayd",
        RowText(
            "The certificate of the bootstrap node's journal gateway, for the server and for its clients.",
            "systemd-journal-gatewayd on the bootstrap node",
            "The bootstrap node's journal can be read only after logging in.",
            "The same, but without names; ours contains the bootstrap node's name, so that clients can verify it.",
        ),
        ("OpenShift Bootstrap",),
        "root-ca",
        BOTH,
        CertificateNames.BOOTSTRAP,
        scope=Scope.OPENSHIFT,
        verified_by=("root-ca",),
    ),
)

API: Final = (
    signer(
        "admin-kubeconfig-signer",
        Life.TEN_YEARS,
        "Signs only the administrator's client certificate.",
        "kube-apiserver (in its client-CA bundle); openshift-config/admin-kubeconfig-client-ca after the pivot",
        "The administrator gets Unauthorized; after the pivot too, if that ConfigMap is missing.",
        "The same; no operator rotates it.",
    ),
    CertificateRow(
        "admin-kubeconfig-client",
        PkiKind.LEAF,
        "system:admin",
        RowText(
            "The administrator's client certificate, in group system:masters, which is allowed everything.",
            "kubeconfigs admin, localhost, localhost-recovery, lb-int and lb-ext",
            "No administrator can use the API.",
            "The same subject, with both usages.",
        ),
        (MASTERS,),
        "admin-kubeconfig-signer",
        BOTH,
        verified_by=(CLIENT_CA,),
    ),
    signer(
        "kube-apiserver-localhost-signer",
        Life.TEN_YEARS,
        "Signs the serving certificate of kube-apiserver for clients on the same node.",
        "kubeconfigs (server-CA bundle); localhost-serving-signer after the pivot",
        "bootkube, the version operator and recovery reject https://localhost:6443.",
        "The same.",
    ),
    _apiserver(
        "kube-apiserver-localhost-server",
        "kube-apiserver-localhost-signer",
        CertificateNames.LOCALHOST,
        "The serving certificate of kube-apiserver for clients that send the SNI `localhost`.",
        "kube-apiserver on every control plane node",
        "Nothing on the bootstrap node starts: x509: certificate is valid for kubernetes, ..., not localhost.",
        "One of four serving certificates, chosen by SNI; one day.",
    ),
    signer(
        "kube-apiserver-service-network-signer",
        Life.TEN_YEARS,
        "Signs the serving certificate of kube-apiserver for pods.",
        "kubeconfigs and every pod (server-CA bundle, kube-root-ca.crt); service-network-serving-signer",
        "Pods reject the API: x509: certificate signed by unknown authority.",
        "The same.",
    ),
    _apiserver(
        "kube-apiserver-service-network-server",
        "kube-apiserver-service-network-signer",
        CertificateNames.SERVICE,
        "The default serving certificate of kube-apiserver, for pods and for clients that dial an address. It contains "
        "the names and the address of the Service kubernetes, the API's virtual address and the control plane nodes'.",
        "kube-apiserver on every control plane node, as its default pair",
        "x509: certificate is valid for ..., not 172.30.0.1 in every pod; probes by address fail.",
        "Only names and address of the Service; one day.",
    ),
    signer(
        "kube-apiserver-lb-signer",
        Life.TEN_YEARS,
        "Signs the serving certificates of kube-apiserver for clients of the load balancer, external and internal.",
        "kubeconfigs (server-CA bundle); loadbalancer-serving-signer after the pivot",
        "kubectl from outside and every kubelet reject the API.",
        "The same.",
    ),
    _apiserver(
        "kube-apiserver-lb-server",
        "kube-apiserver-lb-signer",
        CertificateNames.LOAD_BALANCER,
        "The serving certificate of kube-apiserver for clients that send the SNI api.DOMAIN.",
        "kube-apiserver on every control plane node",
        "kubectl from outside: x509: certificate is valid for ..., not api.DOMAIN.",
        "The same, without the virtual address; one day.",
    ),
    _apiserver(
        "kube-apiserver-internal-lb-server",
        "kube-apiserver-lb-signer",
        CertificateNames.INTERNAL_LOAD_BALANCER,
        "The serving certificate of kube-apiserver for clients that send the SNI api-int.DOMAIN.",
        "kube-apiserver on every control plane node",
        "Kubelets never get their first certificate: x509: certificate is valid for ..., not api-int.DOMAIN.",
        "The same, without the virtual address; one day.",
    ),
)
