"""The known causes of a failed bootstrap, as checks of a bundle's facts, the likely ones first.

Causes that explain the failing bootkube step come first. A line that successful runs also show is only a warning if
bootkube succeeded.
"""

import dataclasses
from dataclasses import dataclass
from typing import Final

from umbilical.bootstrap.analyze.cause_checks import (
    address_found,
    address_is_one,
    cleaned_up,
    ended_well,
    names_fit,
    not_expired,
    not_reached,
    others_ended_well,
    seen,
    verdict,
)
from umbilical.bootstrap.analyze.facts import BundleFacts
from umbilical.bootstrap.analyze.signatures import FileKind
from umbilical.bootstrap.analyze.tunnel_use import (
    NO_TUNNEL,
    endpoints_answer,
    has_tunnel,
    missing_tunnel,
    needs_use,
    step_without_server,
    tunnel_used,
)
from umbilical.bootstrap.names import STAGES
from umbilical.checks.check import Check, Finding, Outcome, run_checks

_CERTS, _SERVER, _MANIFEST, _CLEANUP = STAGES
_LATE: Final = ("cb-bootstrap", "cvo-overrides", "wait-for-ceo")


@dataclass(frozen=True)
class DiagnosedCause(Check[BundleFacts]):
    stages: tuple[str, ...] = ()
    """bootkube steps that fail or hang because of it."""
    is_transient: bool = False
    """Successful runs show it too, before agents connect or while pods restart."""
    is_of_tunnel: bool = True
    """Only an installation with a tunnel can have it."""


def diagnose(facts: BundleFacts) -> list[Finding]:
    """Run all checks. Failures come first, by likelihood; then warnings, skipped and passed checks."""
    summary = verdict(facts)
    findings = run_checks(CAUSES, facts)
    ranked = []
    for rank, (cause, found) in enumerate(zip(CAUSES, findings, strict=True)):
        finding = _in_context(cause, found, facts)
        explains = rank == 0 or finding.outcome is not Outcome.FAILED or summary.stage in cause.stages
        ranked.append((_ORDER[finding.outcome], not explains, rank, finding))
    return _without_false_hint([finding for _, _, _, finding in sorted(ranked, key=lambda item: item[:3])])


def _without_false_hint(findings: list[Finding]) -> list[Finding]:
    """Do not point to the causes below if there is none."""
    first, *others = findings
    if first.id != "A01" or any(other.outcome in (Outcome.FAILED, Outcome.WARNED) for other in others):
        return findings
    return [dataclasses.replace(first, fix=f"no known cause is in this bundle; {_BY_HAND}"), *others]


def _in_context(cause: DiagnosedCause, finding: Finding, facts: BundleFacts) -> Finding:
    """Adjust a finding to the installation: what it does not have, or has not reached, cannot pass."""
    if finding.outcome is Outcome.FAILED and cause.is_transient and verdict(facts).is_well:
        return dataclasses.replace(finding, outcome=Outcome.WARNED)
    if finding.outcome in (Outcome.PASSED, Outcome.SKIPPED) and cause.is_of_tunnel and missing_tunnel(facts):
        return dataclasses.replace(finding, outcome=Outcome.SKIPPED, evidence=NO_TUNNEL)
    if finding.outcome is Outcome.PASSED and not_reached(facts, cause.stages):
        # The first plan's tunnel has no steps of its own.
        is_absent = cause.stages[0] in STAGES and step_without_server(facts)
        reason = f"bootkube {'has no step' if is_absent else 'has not reached'} {cause.stages[0]}"
        return dataclasses.replace(finding, outcome=Outcome.SKIPPED, evidence=reason)
    return finding


_ORDER: Final = {Outcome.FAILED: 0, Outcome.WARNED: 1, Outcome.SKIPPED: 2, Outcome.PASSED: 3}


_BY_HAND: Final = "on the node: journalctl -u bootkube"
_STAGE_LOGS: Final = (FileKind.JOURNAL, FileKind.RECORD)
_WITH_ADDRESS: Final = (
    "start again with a fixed address: create ignition-configs, umbilical bootstrap patch --dir DIR --node-ip ADDRESS, "
    "create cluster"
)

CAUSES: Final = (
    DiagnosedCause(
        "A01",
        "bootkube succeeded",
        "the cluster is complete only when bootkube has finished all its steps",
        f"see the causes below; {_BY_HAND}",
        ended_well,
        is_of_tunnel=False,
    ),
    DiagnosedCause(
        "A02",
        "the services before bootkube succeeded",
        "bootkube waits for them: without the release image nothing can be rendered",
        "on the node: journalctl -u SERVICE; it shows a wrong pull secret or mirror",
        others_ended_well,
        is_of_tunnel=False,
    ),
    DiagnosedCause(
        "A03",
        "the node found its own address",
        "agents dial it and the server's certificate contains it; without one konnectivity-certs fails every five "
        "seconds",
        f"give the node a default route, or {_WITH_ADDRESS}",
        address_found,
        (_CERTS,),
    ),
    DiagnosedCause(
        "A04",
        "the address of the server is a valid IP address",
        "a route without a source gives the word null, which no certificate can contain; without a host an agent dials "
        "its own node; a name may not exist in the nodes' DNS",
        f"{_WITH_ADDRESS}; an installer with its own tunnel reads OPENSHIFT_INSTALL_BOOTSTRAP_NODE_IP",
        address_is_one,
        (_CERTS, *_LATE),
    ),
    DiagnosedCause(
        "A05",
        "the release contains the tunnel's image",
        "server and agents run the payload's apiserver-network-proxy; some payloads do not have it",
        "oc adm release info --image-for=apiserver-network-proxy; else umbilical bootstrap patch --image REFERENCE",
        seen("no image", "image not pulled", needs=(*_STAGE_LOGS, FileKind.KUBELET)),
        (_SERVER, _MANIFEST),
    ),
    DiagnosedCause(
        "A06",
        "every program that the steps call exists",
        "RHCOS of 5.0 has no envsubst (OCPBUGS-99164), which an early form of the installer's tunnel calls",
        "use an installer with the fix, or switch the feature gate off and run umbilical bootstrap patch, which "
        "needs only bash, openssl, jq, ip, sed and oc",
        seen("no program", needs=_STAGE_LOGS),
        (_CERTS, _SERVER, _MANIFEST, _CLEANUP),
    ),
    DiagnosedCause(
        "A07",
        "no bootkube step starts inside another",
        "the service record ends the script when a step starts before the last one has ended",
        "umbilical bootstrap verify FILE, see check B7 (calls inside a step); undo other edits of bootkube.sh",
        seen("nested stage", needs=_STAGE_LOGS),
        (_CERTS, _SERVER, _MANIFEST, _CLEANUP),
    ),
    DiagnosedCause(
        "A08",
        "the server accepted its options",
        "with --uds-name, --server-port must be 0, and --server-cert, --server-key and --server-ca-cert must not be "
        "set; else the server exits and the pod restarts",
        "umbilical bootstrap verify FILE, see check C5 (server flags); on the node: crictl logs $(crictl ps -aq --name "
        "konnectivity-server)",
        seen("server options", "server files", needs=(FileKind.SERVER_LOG,)),
        _LATE,
    ),
    DiagnosedCause(
        "A09",
        "kube-apiserver read its egress file",
        "kube-apiserver reads it at the start, and does not start without it",
        "umbilical bootstrap verify FILE, see checks C1, C2 and B4 (egress file); on the node: ls -l "
        "/etc/kubernetes/bootstrap-configs",
        seen("no egress file", "bad egress file", needs=(FileKind.APISERVER_LOG,)),
        _LATE,
    ),
    DiagnosedCause(
        "A10",
        "agent pods were admitted",
        "no SCC of the agents' service account allows their pods, for instance because of the host network",
        "umbilical bootstrap render --shape openshift needs no special SCC; see oc get events -n "
        "openshift-bootstrap-konnectivity",
        seen("scc refusal", "pod security refusal", needs=(FileKind.EVENTS,)),
        _LATE,
    ),
    DiagnosedCause(
        "A11",
        "the server's port is open to the nodes",
        "agents time out or have no route: a firewall between the nodes and the bootstrap node drops TCP 8091, or the "
        "nodes have no route to its address",
        "umbilical firewall render --platform NAME; from a node: umbilical firewall check ADDRESS:8091",
        seen("port closed", needs=(FileKind.AGENT_LOG,)),
        _LATE,
        is_transient=True,
    ),
    DiagnosedCause(
        "A12",
        "the server listens where agents dial",
        "the connection is refused: the server is down, or the address belongs to another machine",
        "on the bootstrap node: ss -tln; crictl ps -a --name konnectivity-server; compare its address with the "
        "DaemonSet's --proxy-server-host",
        seen("port refused", needs=(FileKind.AGENT_LOG,)),
        _LATE,
        is_transient=True,
    ),
    DiagnosedCause(
        "A13",
        "the server's certificate names the address that agents dial",
        "agents reject the server: the node has several addresses, or another one after a reboot",
        _WITH_ADDRESS,
        names_fit,
        _LATE,
    ),
    DiagnosedCause(
        "A14",
        "no certificate of the tunnel has expired",
        "they are valid for one day, like the installer's own; a longer installation loses its tunnel",
        "start again from create ignition-configs; compare the machines' clocks: chronyc tracking",
        not_expired,
        _LATE,
    ),
    DiagnosedCause(
        "A15",
        "server and agents have certificates of the same CA",
        "objects are created once and never updated: agents keep the first Secret if certificates were created again",
        "on the node: oc apply -f /opt/openshift/manifests/konnectivity-agent-certs.yaml --kubeconfig "
        "/opt/openshift/auth/kubeconfig",
        seen("unknown authority", needs=(FileKind.AGENT_LOG, FileKind.SERVER_LOG)),
        _LATE,
    ),
    DiagnosedCause(
        "A16",
        "kube-apiserver reached the server's socket",
        "the socket is in /etc/kubernetes/bootstrap-configs, which is /etc/kubernetes/config in kube-apiserver's pod",
        "umbilical bootstrap verify FILE, check C3 (socket path); on the node: ls -l /etc/kubernetes/bootstrap-configs",
        needs_use(seen("no socket", needs=(FileKind.APISERVER_LOG,))),
        _LATE,
        is_transient=True,
    ),
    DiagnosedCause(
        "A17",
        "an agent was connected when one was needed",
        "until an agent connects, calls to pods fail; if it lasts, another cause is behind it",
        "oc get pods -n openshift-bootstrap-konnectivity -o wide; umbilical bootstrap verify --live --dir DIR",
        needs_use(seen("no agent", needs=(FileKind.APISERVER_LOG, FileKind.SERVER_LOG))),
        _LATE,
        is_transient=True,
    ),
    DiagnosedCause(
        "A18",
        "failing webhooks are configured by service",
        "a webhook with clientConfig.url uses the egress selection controlplane, which does not use the tunnel",
        "use clientConfig.service in the webhook's configuration",
        seen("url webhook", needs=(FileKind.APISERVER_LOG,)),
        _LATE,
        is_transient=True,
    ),
    DiagnosedCause(
        "A19",
        "failing webhooks have an endpoint that answers",
        "the service has no ready pod, or its pod does not listen: this is not a problem of the tunnel; failurePolicy "
        "Fail blocks the requests",
        "oc get pods,endpointslices -n NAMESPACE of the webhook; find out why its pods do not start or answer",
        endpoints_answer,
        _LATE,
        is_transient=True,
        is_of_tunnel=False,
    ),
    DiagnosedCause(
        "A20",
        "the tunnel's objects were deleted",
        "a namespace is deleted only when everything in it can be listed: an unreachable conversion webhook keeps it, "
        "and a cleanup that waits for it never ends (OCPBUGS-98586)",
        "umbilical bootstrap teardown --kubeconfig auth/kubeconfig; it shows what keeps the namespace",
        cleaned_up,
        (_CLEANUP,),
    ),
    DiagnosedCause(
        "A21",
        "the installation has a tunnel to its pods",
        "kube-apiserver dials pods itself, and the bootstrap node has no route to them; failurePolicy Fail blocks the "
        "requests",
        "start again with a tunnel: openshift-install create ignition-configs --dir DIR; umbilical bootstrap patch "
        "--dir DIR; openshift-install create cluster --dir DIR",
        has_tunnel,
        _LATE,
        is_transient=True,
        is_of_tunnel=False,
    ),
    DiagnosedCause(
        "A22",
        "kube-apiserver uses the tunnel",
        "without the flag egress-selector-config-file kube-apiserver dials pods itself, and the bootstrap node has no "
        "route to them; other keys of its configuration have no effect",
        "umbilical bootstrap verify FILE, see checks C1, C2, B3 and B4 (egress file, override, flag); on the node: "
        "crictl logs $(crictl ps -q --name kube-apiserver) 2>&1 | grep egress-selector-config-file",
        tunnel_used,
        _LATE,
        is_transient=True,
    ),
    DiagnosedCause(
        "A23",
        "agents could read the CA of the server",
        "an agent without it exits before it dials; the message 'read .: is a directory' means that --ca-cert is empty",
        "set --ca-cert in the DaemonSet to the CA in the mounted Secret; umbilical bootstrap verify FILE, see check C6 "
        "(agent flags)",
        seen("agent without CA", needs=(FileKind.AGENT_LOG,)),
        _LATE,
    ),
)
