"""Explanations of artifacts and lint rules, and the commands that show what a rule checks."""

from collections.abc import Mapping
from typing import Final

from umbilical.checks.report import group_of
from umbilical.hardway.artifacts import certificates, kubeconfigs, machine_config, release
from umbilical.hardway.artifacts.infrastructure import render as infrastructure
from umbilical.hardway.artifacts.manifests import catalogue as manifests
from umbilical.hardway.artifacts.nodes import topics as nodes
from umbilical.hardway.artifacts.static_pods import topics as static_pods
from umbilical.hardway.explain.entry import Explanation, ExplanationKind, Topic, from_topic, sentence
from umbilical.hardway.lint.catalogue import RULES
from umbilical.hardway.lint.facts import LintRule

STAGES: Final[Mapping[str, int]] = {
    **dict.fromkeys(("CFG",), 1),
    **dict.fromkeys(("HA", "LV"), 2),
    **dict.fromkeys(("MCO",), 4),
    **dict.fromkeys(("PKI",), 5),
    **dict.fromkeys(("KC",), 6),
    **dict.fromkeys(("CVO", "CRD", "FG", "ETC", "KP", "KN", "INF", "NET", "CC", "EE", "DNS", "ING", "MAN", "HO"), 7),
    **dict.fromkeys(("BK", "CRIO", "SE", "AU", "IGN"), 8),
}
"""Group of a rule -> stage whose page contains it."""
_SINGLE: Final[Mapping[str, int]] = {"CFG-05": 4, "BK-03": 7}


def stage_of(rule_id: str) -> int:
    return _SINGLE.get(rule_id) or STAGES[group_of(rule_id)]


def _written(node: str, path: str) -> str:
    """Command that shows what a node's Ignition writes to a path."""
    chosen = f'.storage.files[] | select(.path == "{path}") | .contents.source'
    return f"jq -r '{chosen}' artifacts/ignition/{node}.ign | cut -d, -f2- | base64 -d | zcat -f"


def _flag(file: str, flag: str) -> str:
    return f"grep -e '--{flag}' artifacts/static-pods/bootstrap/{file}"


_HAPROXY: Final = "artifacts/infrastructure/haproxy.bootstrap.cfg"
_PLAN: Final = "jq -r '.actions[] | .id, .do' artifacts/infrastructure/host-plan.json"
_ETCD_SERVING: Final = "artifacts/tls/etcd-serving-bootstrap.crt"
_API: Final = "kube-apiserver-bootstrap.yaml"
_CVO: Final = "artifacts/late-static-pods/bootstrap/cvo-bootstrap.yaml"
_OBJECT: Final = "cat artifacts/manifests"

BY_HAND: Final[Mapping[str, str]] = {
    "CFG-01": "grep -E 'name:|baseDomain:' cluster.yaml",
    "CFG-02": "umbilical config view --origin | grep -E 'networks|address'",
    "CFG-03": "umbilical config view | grep -E 'pods|hostPrefix'",
    "CFG-04": "grep -A3 'masters:' cluster.yaml",
    "CFG-05": "grep -rhoE 'image: .*' artifacts/static-pods artifacts/late-static-pods | grep -v '@sha256:'",
    "CFG-06": f"{_written('master-0', '/etc/hostname')}; grep 'server ' {_HAPROXY}",
    "CFG-07": "git -C DIR check-ignore -v artifacts/tls/root-ca.key artifacts/auth/admin.kubeconfig",
    "PKI-01": f"openssl x509 -in {_ETCD_SERVING} -noout -ext extendedKeyUsage",
    "PKI-02": "for f in artifacts/tls/kube-apiserver-*-server.crt; do openssl x509 -in $f -noout -ext subjectAltName;"
    " done",
    "PKI-03": "openssl verify -x509_strict -purpose sslserver"
    f" -CAfile artifacts/tls/bundles/etcd-ca-bundle.crt {_ETCD_SERVING}",
    "PKI-04": "for f in artifacts/tls/*-signer.crt; do openssl x509 -in $f -noout -subject -ext basicConstraints; done",
    "PKI-05": "openssl x509 -in artifacts/tls/aggregator-client.crt -noout -subject;"
    f" {_flag(_API, 'requestheader-allowed-names')}",
    "PKI-06": "openssl x509 -in artifacts/tls/kube-apiserver-to-kubelet-client.crt -noout -subject;"
    " grep -B4 -A12 'nodes/proxy\\|kubelet-api-admin' artifacts/manifests/03-rbac.yaml",
    "PKI-07": "for f in artifacts/tls/*-client.crt; do openssl x509 -in $f -noout -subject; done",
    "PKI-08": "stat -c '%a %n' artifacts/tls/*.key; openssl x509 -in artifacts/tls/etcd-client.crt -noout -ext"
    " subjectKeyIdentifier,authorityKeyIdentifier,keyUsage",
    "PKI-09": "for f in artifacts/tls/*.crt; do openssl x509 -in $f -noout -checkend 14400 || echo $f; done",
    "PKI-10": "grep -A1 'tls.crt' artifacts/manifests/06-handoff-etcd.yaml | head -2; openssl x509"
    " -in artifacts/tls/etcd-signer.crt -noout -fingerprint -dates",
    "PKI-11": "openssl pkey -in artifacts/tls/service-account.key -pubout | diff - artifacts/tls/service-account.pub",
    "PKI-12": "openssl x509 -in artifacts/tls/etcd-peer-bootstrap.crt -noout -ext subjectAltName",
    "KC-01": "for f in artifacts/auth/*.kubeconfig; do kubectl --kubeconfig=$f config view --minify; done",
    "KC-02": "grep -H 'server:' artifacts/auth/kube-*.kubeconfig artifacts/auth/localhost.kubeconfig",
    "BK-01": "jq -r '.systemd.units[] | select(.name == \"kubelet.service\") | .contents'"
    " artifacts/ignition/bootstrap.ign | grep kubeconfig",
    "BK-02": _written("bootstrap", "/etc/kubernetes/kubelet.conf"),
    "BK-03": "ls artifacts/static-pods/bootstrap artifacts/late-static-pods/bootstrap",
    "CRIO-01": _written("bootstrap", "/etc/crio/crio.conf.d/00-pause.conf"),
    "CRIO-02": f"{_written('bootstrap', '/etc/crio/crio.conf.d/00-pause.conf')} | grep pause_",
    "SE-01": "jq -r '.systemd.units[].contents' artifacts/ignition/bootstrap.ign | grep ExecStart",
    "CVO-01": f"grep -E 'image:|release-image' {_CVO}",
    "CVO-02": f"grep -e '--listen' {_CVO}",
    "CVO-03": f"grep -A1 CLUSTER_PROFILE {_CVO}",
    "CVO-04": f"grep privileged {_CVO}",
    "CVO-05": f"{_OBJECT}/07-cluster-version.yaml",
    "CRD-01": "ls artifacts/manifests",
    "CRD-02": "grep -h '^  name:' artifacts/manifests/02-crd-*.yaml | sort | uniq -d",
    "CRD-03": "ls artifacts/manifests/02-crd-*.yaml | wc -l",
    "FG-01": "ls artifacts/manifests/04-feature-gate.yaml artifacts/late-static-pods/bootstrap/cvo-bootstrap.yaml",
    "FG-02": "grep -A3 'featureGates:' artifacts/manifests/04-feature-gate.yaml",
    "KP-01": "grep -E 'image:|privileged|hostNetwork' artifacts/static-pods/master-0/kube-proxy.yaml",
    "KP-02": "grep -B12 'system:node-proxier' artifacts/manifests/03-rbac.yaml;"
    " kubectl auth can-i list services --as=system:kube-proxy",
    "KP-03": "ls artifacts/static-pods/*/kube-proxy.yaml",
    "KP-04": "jq . artifacts/static-pods/removals.json",
    "AU-01": _written("master-0", "/etc/kubernetes/apiserver-url.env"),
    "INF-01": f"{_OBJECT}/05-infrastructure.yaml; kubectl get infrastructure cluster -o jsonpath={{.status}}",
    "INF-02": "grep -A2 platformStatus artifacts/manifests/05-infrastructure.yaml",
    "NET-01": "diff artifacts/manifests/05-network.yaml artifacts/manifests/05-network-operator.yaml",
    "NET-02": "ls artifacts/manifests | grep -i network",
    "CC-01": f"{_OBJECT}/06-cluster-config.yaml",
    "EE-01": f"{_OBJECT}/06-etcd-endpoints.yaml",
    "ETC-01": _flag("etcd-bootstrap.yaml", "name"),
    "ETC-02": _flag(_API, "etcd-prefix"),
    "DNS-01": "grep baseDomain artifacts/manifests/05-dns.yaml",
    "ING-01": "grep domain artifacts/manifests/05-ingress.yaml",
    "MAN-01": "kubectl create --dry-run=client --validate=false -o name -f artifacts/manifests | sort | uniq -d",
    "MAN-02": f"{_written('bootstrap', '/usr/local/bin/bootkube.sh')} | grep -n '|| true'",
    "HO-01": "grep -hE '^  (name|namespace):' artifacts/manifests/06-handoff-*.yaml",
    "MCO-01": "grep -e '--payload-version' artifacts/machine-config/render.sh",
    "MCO-02": "ls -R artifacts/machine-config/tls artifacts/machine-config/manifests",
    "MCO-03": "jq -r '.systemd.units[].name' artifacts/ignition/master-0.ign",
    "IGN-01": "for f in artifacts/ignition/*.ign; do ignition-validate $f; done; jq -r '.storage.files[].path'"
    " artifacts/ignition/master-0.ign | sort | uniq -d",
    "IGN-02": "jq -r '.storage.files[] | \"\\(.mode) \\(.path)\"' artifacts/ignition/bootstrap.ign | grep key",
    "IGN-03": _written("master-0", "/etc/NetworkManager/system-connections/machine.nmconnection"),
    "IGN-04": "jq -r '.storage.files[].path' artifacts/ignition/master-0.ign",
    "IGN-05": "jq -r '.storage.files[].path' artifacts/ignition/bootstrap.ign | sort",
    "IGN-06": "ls -lS artifacts/ignition",
    "IGN-07": "jq -r '.systemd.units[] | \"\\(.name) \\(.enabled)\"' artifacts/ignition/bootstrap.ign",
    "HA-01": f"grep -E 'httpchk|check-ssl' {_HAPROXY}; haproxy -c -f {_HAPROXY}",
    "HA-02": f"grep 'server ' {_HAPROXY} artifacts/infrastructure/haproxy.final.cfg",
    "HA-03": f"grep bind {_HAPROXY}; ip -brief address show",
    "HA-04": _PLAN,
    "HA-05": f"grep timeout {_HAPROXY}",
    "LV-01": f"{_PLAN} | grep MASQUERADE",
    "LV-02": "grep range artifacts/infrastructure/network.xml",
    "LV-03": "grep -h 'source file' artifacts/infrastructure/domains/*.xml",
    "LV-04": "grep -h boot artifacts/infrastructure/domains/*.xml",
    "LV-05": "grep apps artifacts/infrastructure/network.xml artifacts/infrastructure/dns/cluster.zone",
    "LV-06": "grep -h listen artifacts/infrastructure/domains/*.xml",
    "KN-01": f"{_flag('konnectivity-server-pod.yaml', 'uds-name')};"
    " grep udsName artifacts/static-pods/bootstrap/config/egress-selector-config.yaml",
    "KN-02": "cat artifacts/static-pods/bootstrap/config/egress-selector-config.yaml",
    "KN-03": f"{_flag('konnectivity-server-pod.yaml', 'agent-port')};"
    " grep -e '--proxy-server' artifacts/manifests/08-tunnel.yaml",
    "KN-04": "jq . artifacts/static-pods/removals.json",
    "KN-05": "grep -rl egress-selector artifacts/late-static-pods artifacts/static-pods/master-*",
    "KN-06": _written("bootstrap", "/usr/local/bin/konnectivity-certs.sh") + " | grep days",
}


TOPICS: Final[tuple[Topic, ...]] = (
    *infrastructure.TOPICS,
    *release.TOPICS,
    *machine_config.TOPICS,
    *certificates.TOPICS,
    *kubeconfigs.TOPICS,
    *static_pods.TOPICS,
    *manifests.TOPICS,
    *nodes.TOPICS,
)
_ALIASES: Final = {"domains": ("domains/*.xml",)}
"""Topics of a whole directory."""


def entries() -> tuple[Explanation, ...]:
    """Explain every file, certificate, flag and rule, in the order of their tables."""
    told = (from_topic(topic, _ALIASES.get(topic.name, ())) for topic in TOPICS)
    return (*told, *map(_rule, RULES))


def _rule(rule: LintRule) -> Explanation:
    check, stage = rule.check, stage_of(rule.id)
    profiles = " and ".join(sorted(profile.value for profile in rule.profiles))
    return Explanation(
        kind=ExplanationKind.RULE,
        name=rule.id,
        what=sentence(check.title),
        stage=stage,
        scope=f"{rule.severity.value} for {profiles}",
        readers=f"umbilical stage lint, umbilical stage doctor, and the checks of stage {stage:02}.",
        without=sentence(check.why),
        by_hand=BY_HAND[rule.id],
        fix=check.fix,
    )
