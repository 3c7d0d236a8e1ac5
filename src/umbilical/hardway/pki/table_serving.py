"""Rows of the hard way's certificate table: servers of the API and of machine configuration, and the administrator."""

from typing import Final

from umbilical.hardway.pki.row import (
    APISERVER,
    BOTH,
    CLIENT_CA,
    SERVER,
    SERVER_CA,
    CertificateExplanation,
    CertificateNames,
    CertificateRow,
    Life,
    Scope,
    signer,
)
from umbilical.pki.control_plane_set import MASTERS, Kind


def _apiserver(id_: str, signed_by: str, names: CertificateNames, *words: str) -> CertificateRow:
    (name, group), told = APISERVER, CertificateExplanation(*words)
    return CertificateRow(
        id_, Kind.LEAF, name, told, (group,), signed_by, SERVER, names, Life.SHORT, verified_by=(SERVER_CA,)
    )


MACHINE_CONFIG: Final = (
    CertificateRow(
        "root-ca",
        Kind.AUTHORITY,
        "root-ca",
        CertificateExplanation(
            "The signer of the machine-config server and of nothing else, whatever its name says.",
            "nodes that fetch their configuration, kube-system/root-ca, the machine-config operator",
            "New nodes refuse the machine-config server: x509: certificate signed by unknown authority.",
            "tls/root-ca.crt, ten years; the only one of its signers that the installer calls a root.",
        ),
        scope=Scope.OPENSHIFT,
    ),
    CertificateRow(
        "machine-config-server",
        Kind.LEAF,
        "system:machine-config-server",
        CertificateExplanation(
            "The serving certificate of the machine-config server on port 22623.",
            "the machine-config server, through openshift-machine-config-operator/machine-config-server-tls",
            "Machines that are added later get no configuration.",
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
        Kind.LEAF,
        "journal-gatewayd",
        CertificateExplanation(
            "What the bootstrap node's journal gateway serves with, and what its readers show.",
            "systemd-journal-gatewayd on the bootstrap node",
            "The journal of a bootstrap node that nobody can log in to stays unread.",
            "The same, without names in it; ours has the bootstrap node's, so that readers can check it.",
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
        "Signs the administrator's certificate and nothing else.",
        "kube-apiserver (in its client-CA bundle); openshift-config/admin-kubeconfig-client-ca after the pivot",
        "The administrator is Unauthorized; after the pivot too, if its hand-off object is missing.",
        "The same; it is not rotated by any operator.",
    ),
    CertificateRow(
        "admin-kubeconfig-client",
        Kind.LEAF,
        "system:admin",
        CertificateExplanation(
            "The administrator: in group system:masters, which no role can take anything from.",
            "kubeconfigs admin, localhost, localhost-recovery, lb-int and lb-ext",
            "Nobody can ask the API anything.",
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
        "Signs what kube-apiserver shows to those on its own machine.",
        "kubeconfigs (server-CA bundle); localhost-serving-signer after the pivot",
        "bootkube, the version operator and recovery refuse https://localhost:6443.",
        "The same.",
    ),
    _apiserver(
        "kube-apiserver-localhost-server",
        "kube-apiserver-localhost-signer",
        CertificateNames.LOCALHOST,
        "What kube-apiserver shows to whoever asks for `localhost` (by SNI).",
        "kube-apiserver on every control plane node",
        "x509: certificate is valid for kubernetes, ..., not localhost: nothing on the bootstrap node starts.",
        "One of four serving certificates, chosen by SNI; one day.",
    ),
    signer(
        "kube-apiserver-service-network-signer",
        Life.TEN_YEARS,
        "Signs what kube-apiserver shows to pods.",
        "kubeconfigs and every pod (server-CA bundle, kube-root-ca.crt); service-network-serving-signer",
        "Every pod that talks to the API gets x509: certificate signed by unknown authority.",
        "The same.",
    ),
    _apiserver(
        "kube-apiserver-service-network-server",
        "kube-apiserver-service-network-signer",
        CertificateNames.SERVICE,
        "What kube-apiserver shows to pods, and to whoever dials an address: the names of the service, its first "
        "address, the API's virtual address, and each control plane node's.",
        "kube-apiserver on every control plane node, as its default pair",
        "x509: certificate is valid for ..., not 172.30.0.1 in every pod; probes by address fail.",
        "Names and first address of the service only; one day.",
    ),
    signer(
        "kube-apiserver-lb-signer",
        Life.TEN_YEARS,
        "Signs what kube-apiserver shows through the load balancer, outside and inside.",
        "kubeconfigs (server-CA bundle); loadbalancer-serving-signer after the pivot",
        "kubectl from outside and every kubelet refuse the API.",
        "The same.",
    ),
    _apiserver(
        "kube-apiserver-lb-server",
        "kube-apiserver-lb-signer",
        CertificateNames.LOAD_BALANCER,
        "What kube-apiserver shows to whoever asks for api.DOMAIN (by SNI).",
        "kube-apiserver on every control plane node",
        "kubectl from outside: x509: certificate is valid for ..., not api.DOMAIN.",
        "The same, without the virtual address; one day.",
    ),
    _apiserver(
        "kube-apiserver-internal-lb-server",
        "kube-apiserver-lb-signer",
        CertificateNames.INTERNAL_LOAD_BALANCER,
        "What kube-apiserver shows to whoever asks for api-int.DOMAIN (by SNI).",
        "kube-apiserver on every control plane node",
        "Kubelets never get their first certificate: x509: certificate is valid for ..., not api-int.DOMAIN.",
        "The same, without the virtual address; one day.",
    ),
)
