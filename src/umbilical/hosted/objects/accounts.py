"""Who agents and servers are to the two APIs: nobody without need, and readers or writers of leases where asked."""

from umbilical.hosted.objects import names
from umbilical.hosted.objects.agent_pod import LABELS
from umbilical.hosted.objects.objects import metadata
from umbilical.hosted.objects.spec import HostedSpec, ServerCount
from umbilical.manifests.objects import Object, manifest

_CLUSTER_SERVICE = {"kubernetes.io/cluster-service": "true"}


def management_accounts(spec: HostedSpec) -> list[Object]:
    return [_account(spec, spec.namespace)] if spec.known_addresses else []


def hosted_accounts(spec: HostedSpec) -> list[Object]:
    account = _account(spec, names.HOSTED_NAMESPACE)
    return [account, *_lease_rights(spec)] if spec.server_count is ServerCount.LEASES else [account]


def namespace_labels(spec: HostedSpec) -> list[Object]:
    """Let pods on the host's network into kube-system, where pod security is enforced. Only labels are set."""
    if not spec.agents.host_network:
        return []
    labels = {f"pod-security.kubernetes.io/{kind}": "privileged" for kind in ("enforce", "audit", "warn")}
    # Else OpenShift sets them back.
    labels["security.openshift.io/scc.podSecurityLabelSync"] = "false"
    return [manifest("v1", "Namespace", {"name": names.HOSTED_NAMESPACE, "labels": labels})]


def _account(spec: HostedSpec, namespace: str) -> Object:
    head = metadata(spec, names.AGENT, namespace, {**LABELS, **_CLUSTER_SERVICE})
    # A token would only be something to steal; a pod that counts leases asks for one itself.
    return manifest("v1", "ServiceAccount", head, automountServiceAccountToken=False)


def _lease_rights(spec: HostedSpec) -> list[Object]:
    server = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": spec.leases.user}
    agent = {"kind": "ServiceAccount", "name": names.AGENT, "namespace": names.HOSTED_NAMESPACE}
    return [
        *_role(spec, "konnectivity-server-leases", ["get", "create", "update", "list", "delete"], server),
        *_role(spec, "konnectivity-agent-leases", ["get", "list", "watch"], agent),
    ]


def _role(spec: HostedSpec, name: str, verbs: list[str], subject: Object) -> list[Object]:
    head = metadata(spec, name, names.HOSTED_NAMESPACE)
    rules = [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs}]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    return [
        manifest("rbac.authorization.k8s.io/v1", "Role", head, rules=rules),
        manifest("rbac.authorization.k8s.io/v1", "RoleBinding", head, roleRef=reference, subjects=[subject]),
    ]
