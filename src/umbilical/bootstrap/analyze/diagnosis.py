"""Why a bootstrap fails: every known cause as a check over the facts of a bundle, the likely ones first.

What breaks often and early stands before what is rare; a cause that explains the very stage that fails comes before
one that does not. A line that any good run shows for a while is only a warning once bootkube has ended well.
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
from umbilical.bootstrap.names import STAGES
from umbilical.checks.check import Check, Finding, Outcome, judge

_CERTS, _SERVER, _MANIFEST, _CLEANUP = STAGES
_LATE: Final = ("cb-bootstrap", "cvo-overrides", "wait-for-ceo")


@dataclass(frozen=True)
class FailureCause(Check[BundleFacts]):
    stages: tuple[str, ...] = ()
    """The stages that fail or hang by it."""
    is_transient: bool = False
    """Good runs show it too, before agents connect or while pods restart."""


def diagnose(facts: BundleFacts) -> list[Finding]:
    """Ask all causes. Failures come first, by likelihood; then warnings, what could not be told, and what is well."""
    told = verdict(facts)
    findings = judge(CAUSES, facts)
    ranked = []
    for rank, (cause, found) in enumerate(zip(CAUSES, findings, strict=True)):
        finding = _in_context(cause, found, facts)
        explains = rank == 0 or finding.outcome is not Outcome.FAILED or told.stage in cause.stages
        ranked.append((_ORDER[finding.outcome], not explains, rank, finding))
    return [finding for _, _, _, finding in sorted(ranked, key=lambda item: item[:3])]


def _in_context(cause: FailureCause, finding: Finding, facts: BundleFacts) -> Finding:
    """Weigh a finding by how far bootkube came: what was never tried cannot be well."""
    if finding.outcome is Outcome.FAILED and cause.is_transient and verdict(facts).is_well:
        return dataclasses.replace(finding, outcome=Outcome.WARNED)
    if finding.outcome is Outcome.PASSED and not_reached(facts, cause.stages):
        reason = f"bootkube has not come to {cause.stages[0]}"
        return dataclasses.replace(finding, outcome=Outcome.SKIPPED, evidence=reason)
    return finding


_ORDER: Final = {Outcome.FAILED: 0, Outcome.WARNED: 1, Outcome.SKIPPED: 2, Outcome.PASSED: 3}


_STAGE_LOGS: Final = (FileKind.JOURNAL, FileKind.RECORD)
_WITH_ADDRESS: Final = (
    "begin again with a given one: create ignition-configs, umbilical bootstrap patch --dir DIR --node-ip ADDRESS, "
    "create cluster"
)

CAUSES: Final = (
    FailureCause(
        "A01",
        "bootkube ended well",
        "the cluster is only complete when bootkube has gone through all its stages",
        "look at the causes below; on the node: journalctl -u bootkube",
        ended_well,
    ),
    FailureCause(
        "A02",
        "the services before bootkube ended well",
        "bootkube waits for them: without the release image nothing can be rendered",
        "journalctl -u SERVICE on the node; a pull secret or a mirror that fails shows there",
        others_ended_well,
    ),
    FailureCause(
        "A03",
        "the node found its own address",
        "agents dial it and the server's certificate names it; without one konnectivity-certs fails every five "
        "seconds, for ever",
        f"give the node a default route, or {_WITH_ADDRESS}",
        address_found,
        (_CERTS,),
    ),
    FailureCause(
        "A04",
        "the address of the server is an address",
        "a route without a source gives the word null, which no certificate can name and no agent can dial",
        f"{_WITH_ADDRESS}; an installer with the feature of its own takes it from OPENSHIFT_INSTALL_BOOTSTRAP_NODE_IP",
        address_is_one,
        (_CERTS, *_LATE),
    ),
    FailureCause(
        "A05",
        "the release has the image of the tunnel",
        "server and agents come from the payload's apiserver-network-proxy; some payloads do not have it",
        "oc adm release info --image-for=apiserver-network-proxy; else umbilical bootstrap patch --image REFERENCE",
        seen("no image", "image not pulled", needs=(*_STAGE_LOGS, FileKind.KUBELET)),
        (_SERVER, _MANIFEST),
    ),
    FailureCause(
        "A06",
        "every program that the stages call exists",
        "RHCOS of 5.0 has no envsubst (OCPBUGS-99164): an early form of the feature dies there",
        "use an installer with the fix, or switch the feature gate off and run umbilical bootstrap patch, which "
        "needs bash, openssl, jq, ip, sed and oc only",
        seen("no program", needs=_STAGE_LOGS),
        (_CERTS, _SERVER, _MANIFEST, _CLEANUP),
    ),
    FailureCause(
        "A07",
        "no stage lies inside another",
        "the service record ends the script when a stage begins before the last one has ended",
        "umbilical bootstrap verify FILE shows where the calls stand (B7); undo other edits of bootkube.sh",
        seen("nested stage", needs=_STAGE_LOGS),
        (_CERTS, _SERVER, _MANIFEST, _CLEANUP),
    ),
    FailureCause(
        "A08",
        "the server accepted its options",
        "with --uds-name the port for clients must be 0 and the --server-… files must not be set; the pod restarts "
        "for ever",
        "umbilical bootstrap verify FILE (C5); crictl logs $(crictl ps -aq --name konnectivity-server) on the node",
        seen("server options", "server files", needs=(FileKind.SERVER_LOG,)),
        _LATE,
    ),
    FailureCause(
        "A09",
        "kube-apiserver read its egress file",
        "it is read at the start: without it the bootstrap kube-apiserver does not come up at all",
        "umbilical bootstrap verify FILE (C1, C2, B4); ls -l /etc/kubernetes/bootstrap-configs on the node",
        seen("no egress file", "bad egress file", needs=(FileKind.APISERVER_LOG,)),
        _LATE,
    ),
    FailureCause(
        "A10",
        "agent pods were admitted",
        "no SCC of the agents' service account allows what their pods ask for, for instance the host's network",
        "umbilical bootstrap render --shape openshift asks for nothing special; see oc get events -n "
        "openshift-bootstrap-konnectivity",
        seen("scc refusal", "pod security refusal", needs=(FileKind.EVENTS,)),
        _LATE,
    ),
    FailureCause(
        "A11",
        "the server's port is open to the nodes",
        "agents get no answer at all: a firewall between the nodes and the bootstrap node drops TCP 8091",
        "umbilical firewall render --platform NAME; from a node: umbilical firewall check ADDRESS:8091",
        seen("port closed", needs=(FileKind.AGENT_LOG,)),
        _LATE,
        is_transient=True,
    ),
    FailureCause(
        "A12",
        "the server listens where agents dial",
        "the machine answers and nothing listens: the server is down, or the address is another machine's",
        "ss -tln and crictl ps -a --name konnectivity-server on the bootstrap node; compare its address with the "
        "DaemonSet's --proxy-server-host",
        seen("port refused", needs=(FileKind.AGENT_LOG,)),
        _LATE,
        is_transient=True,
    ),
    FailureCause(
        "A13",
        "the server's certificate names the address that agents dial",
        "agents refuse the server: the node has several addresses, or changed its own after a reboot",
        _WITH_ADDRESS,
        names_fit,
        _LATE,
    ),
    FailureCause(
        "A14",
        "no certificate of the tunnel has expired",
        "they live one day, like the installer's own; an installation that takes longer loses its tunnel",
        "begin again from create ignition-configs; compare the clocks of the machines (chronyc tracking)",
        not_expired,
        _LATE,
    ),
    FailureCause(
        "A15",
        "both ends have the same signer",
        "objects are created once and never updated: agents keep the first Secret when certificates were made anew",
        "on the node: oc apply -f /opt/openshift/manifests/konnectivity-agent-certs.yaml --kubeconfig "
        "/opt/openshift/auth/kubeconfig",
        seen("unknown authority", "agent without CA", needs=(FileKind.AGENT_LOG, FileKind.SERVER_LOG)),
        _LATE,
    ),
    FailureCause(
        "A16",
        "kube-apiserver reached the server's socket",
        "the socket lies in /etc/kubernetes/bootstrap-configs, which is /etc/kubernetes/config inside the pod",
        "umbilical bootstrap verify FILE (C3); ls -l /etc/kubernetes/bootstrap-configs on the node",
        seen("no socket", needs=(FileKind.APISERVER_LOG,)),
        _LATE,
        is_transient=True,
    ),
    FailureCause(
        "A17",
        "an agent was connected when one was needed",
        "until an agent connects, calls to pods fail; seen for long it is the effect of another cause",
        "oc get pods -n openshift-bootstrap-konnectivity -o wide; umbilical bootstrap verify --live --dir DIR",
        seen("no agent", needs=(FileKind.APISERVER_LOG, FileKind.SERVER_LOG)),
        _LATE,
        is_transient=True,
    ),
    FailureCause(
        "A18",
        "webhooks that fail are given by their service",
        "one that is given by a URL goes through the egress selection controlplane, which is not tunnelled",
        "use clientConfig.service in the webhook's configuration",
        seen("url webhook", needs=(FileKind.APISERVER_LOG,)),
        _LATE,
        is_transient=True,
    ),
    FailureCause(
        "A19",
        "webhooks that fail have someone to answer",
        "the service has no ready pod: no tunnel can help, and failurePolicy Fail blocks what the webhook guards",
        "oc get pods,endpointslices of the webhook's namespace; look at why its pods do not start",
        seen("no endpoint", needs=(FileKind.APISERVER_LOG,)),
        _LATE,
        is_transient=True,
    ),
    FailureCause(
        "A20",
        "the tunnel's objects were removed",
        "a namespace ends only when everything in it can be listed: a conversion webhook that nobody reaches "
        "keeps it, and a cleanup that waits for it never ends (OCPBUGS-98586)",
        "umbilical bootstrap teardown --kubeconfig auth/kubeconfig; it tells what holds the namespace",
        cleaned_up,
        (_CLEANUP,),
    ),
)
