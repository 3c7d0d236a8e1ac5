"""kube-apiserver's calls to pods: without a tunnel, past the tunnel, and through it, where the text can be the same."""

from pathlib import Path
from typing import Final

import pytest
from tests.support.log_bundles import (
    APISERVER_CONFIG,
    APISERVER_LOG,
    BEFORE,
    EGRESS_ARGUMENT,
    JOURNAL,
    SERVER_LOG,
    STAGES,
    WITHOUT_TUNNEL,
    BundleBuilder,
    Record,
    klog,
)

from umbilical.bootstrap.analyze.diagnosis import diagnose
from umbilical.bootstrap.analyze.facts import gather
from umbilical.bootstrap.analyze.log_bundle import open_bundle
from umbilical.checks.check import Finding, Outcome

NAME: Final = "vcrd.compat.openshift.io"
URL: Final = "https://hook.openshift-cluster-api.svc:443/validate?timeout=10s"
POD: Final = "dial tcp 10.128.2.5:8443: "
REFUSED: Final = f"{POD}connect: connection refused"
NO_ROUTE: Final = f"{POD}connect: no route to host"
PACKAGES: Final = "https://10.128.0.10:5443/apis/packages.operators.coreos.com/v1"
AGGREGATED: Final = f"v1.packages.operators.coreos.com failed with: failing or missing response from {PACKAGES}:"
NO_TUNNEL: Final = "this installation has no tunnel"


def webhook(reason: str, policy: str = "closed") -> str:
    """A line of kube-apiserver 1.36, with its usual repetition."""
    return (
        f"W1115 14:10:00.694961       1 dispatcher.go:217] Failed calling webhook, failing {policy} {NAME}: "
        f'failed calling webhook "{NAME}": failed to call webhook: Post "{URL}": {reason}'
    )


def hangs(*stages: str) -> BundleBuilder:
    done = stages[: stages.index("cb-bootstrap")]
    return BundleBuilder(Record().start().done(*done).enters("cb-bootstrap"))


def without_tunnel(*lines: str) -> BundleBuilder:
    return hangs(*WITHOUT_TUNNEL).log(APISERVER_LOG, *lines)


def with_tunnel(*lines: str) -> BundleBuilder:
    return hangs(*STAGES).log(APISERVER_LOG, *lines)


def findings_of(builder: BundleBuilder, folder: Path) -> dict[str, Finding]:
    return {finding.id: finding for finding in diagnose(gather(open_bundle(builder.archive(folder))))}


def causes(findings: dict[str, Finding], outcome: Outcome = Outcome.FAILED) -> set[str]:
    return {identifier for identifier, finding in findings.items() if finding.outcome is outcome} - {"A01"}


@pytest.mark.parametrize(
    "line",
    [
        webhook(NO_ROUTE),
        webhook(REFUSED),
        webhook(f"{POD}i/o timeout"),
        webhook(f"{POD}connect: network is unreachable"),
        webhook(f"{POD}connect: connection timed out"),
        webhook("context deadline exceeded"),
        webhook("dial tcp [fd01:0:0:1::5]:8443: connect: network is unreachable"),
        webhook("dial tcp 172.30.4.9:443: i/o timeout"),
        webhook(NO_ROUTE).replace('"', '\\"'),
        f'E1115 watcher.go:1] conversion webhook for example.io/v1, Kind=X failed: Post "{URL}": {NO_ROUTE}',
    ],
)
def test_a_call_to_a_pod_without_a_tunnel_is_the_missing_tunnel(tmp_path: Path, line: str) -> None:
    findings = findings_of(without_tunnel(line), tmp_path)
    assert causes(findings) == {"A21"}
    told = findings["A21"].evidence.splitlines()
    assert told[0] == f"{NO_TUNNEL}: bootkube ran kube-apiserver-bootstrap, and never konnectivity-certs"
    assert line.rsplit(": ", maxsplit=1)[1] in told[1]


def test_what_a_tunnel_alone_can_break_is_skipped_without_one(tmp_path: Path) -> None:
    findings = findings_of(without_tunnel(webhook(NO_ROUTE)), tmp_path)
    skipped = {identifier for identifier, finding in findings.items() if finding.evidence == NO_TUNNEL}
    assert skipped == set(findings) - {"A01", "A02", "A19", "A21"}


@pytest.mark.parametrize(
    "line",
    [
        webhook(NO_ROUTE, "open"),
        webhook("context deadline exceeded", "open"),
        f'{AGGREGATED} Get "{PACKAGES}": {NO_ROUTE}',
        f"{AGGREGATED} Get {PACKAGES}: net/http: request canceled while waiting for connection (Client.Timeout)",
        f"E1115 ResponseCode: 503, Body: error trying to reach service: {NO_ROUTE}",
    ],
)
def test_a_call_that_blocks_nothing_is_a_warning(tmp_path: Path, line: str) -> None:
    findings = findings_of(without_tunnel(line), tmp_path)
    assert (causes(findings), causes(findings, Outcome.WARNED)) == (set(), {"A21"})


def test_an_installation_without_a_tunnel_that_needs_none_has_no_finding(tmp_path: Path) -> None:
    whole = BundleBuilder(Record().start().done(*WITHOUT_TUNNEL).ends_well())
    findings = findings_of(whole.log(APISERVER_LOG, "all is well"), tmp_path)
    assert causes(findings) | causes(findings, Outcome.WARNED) == set()
    findings = findings_of(whole.log(APISERVER_LOG, webhook(NO_ROUTE)), tmp_path)
    assert (causes(findings), causes(findings, Outcome.WARNED)) == (set(), {"A21"})


def test_a_tunnel_that_is_not_in_the_files_is_not_awaited(tmp_path: Path) -> None:
    early = BundleBuilder(Record().start().done(*BEFORE[:-1]).fails("etcd-bootstrap"))
    assert findings_of(early, tmp_path)["A03"].evidence == "bootkube has not reached konnectivity-certs"
    assert findings_of(early.networks(), tmp_path)["A03"].evidence == NO_TUNNEL
    # An installer with its own tunnel writes the files in any case.
    early.files["rendered-assets/openshift/konnectivity-server-pod.yaml"] = b"kind: Pod\n"
    assert findings_of(early, tmp_path)["A03"].evidence == "bootkube has not reached konnectivity-certs"


def test_steps_that_the_first_plans_tunnel_does_not_have_are_not_awaited(tmp_path: Path) -> None:
    inline = without_tunnel(webhook(NO_ROUTE)).log(SERVER_LOG, "fine").apiserver_config("egressSelectorConfiguration:")
    findings = findings_of(inline, tmp_path)
    assert causes(findings) == {"A22"}
    assert findings["A03"].evidence == "bootkube has no step konnectivity-certs"
    assert findings["A20"].evidence == "bootkube has no step konnectivity-cleanup"


FLAG: Final = 'I1115 14:00:01.1       1 flags.go:64] FLAG: --egress-selector-config-file="%s"'
EGRESS_FILE: Final = "/etc/kubernetes/config/egress-selector-config.yaml"
USED: Final = FLAG % EGRESS_FILE


@pytest.mark.parametrize(
    ("builder", "failures"),
    [
        (with_tunnel(webhook(REFUSED)).apiserver_config(), {"A22"}),
        (with_tunnel(FLAG % "", webhook(REFUSED)), {"A22"}),
        (with_tunnel("fine").apiserver_config("egressSelectorConfiguration:"), {"A22"}),
        # The pod that ran had no flag, whatever was configured.
        (with_tunnel(FLAG % "", webhook(NO_ROUTE)).apiserver_config(*EGRESS_ARGUMENT), {"A22"}),
        # Only the bootstrap node lacks a route to pods.
        (with_tunnel(webhook(NO_ROUTE)), {"A22"}),
        # With gRPC the agent's error has the same text as kube-apiserver's own.
        (with_tunnel(webhook(REFUSED)).apiserver_config(*EGRESS_ARGUMENT), {"A19"}),
        (with_tunnel(USED, webhook(REFUSED)), {"A19"}),
        (with_tunnel(webhook(REFUSED)).log(SERVER_LOG, *klog('"Failed to get a backend"')), {"A17", "A19"}),
        (with_tunnel(USED, webhook("context deadline exceeded")), set()),
        (with_tunnel(webhook(f"proxy error from /x.socket while dialing {POD[9:-2]}, code 503: 503 x")), set()),
        (with_tunnel(webhook(f"proxy error from /x.socket while dialing {POD[9:-2]}, code 500: 500 x")), {"A17"}),
    ],
)
def test_a_call_past_the_tunnel_is_separated_from_one_through_it(
    tmp_path: Path, builder: BundleBuilder, failures: set[str]
) -> None:
    findings = findings_of(builder, tmp_path)
    assert causes(findings) == failures
    assert causes(findings, Outcome.WARNED) == set()


def test_a_tunnel_past_which_kube_apiserver_dials_is_not_called_reached(tmp_path: Path) -> None:
    findings = findings_of(with_tunnel(FLAG % "", webhook(NO_ROUTE)), tmp_path)
    told = {findings[name].evidence for name in ("A16", "A17")}
    assert told == {"kube-apiserver does not use the tunnel"}


def test_a_key_that_was_mistaken_for_the_flag_is_shown(tmp_path: Path) -> None:
    findings = findings_of(with_tunnel("fine").apiserver_config("egressSelectorConfiguration:"), tmp_path)
    assert findings["A22"].evidence.splitlines() == [
        f"{APISERVER_CONFIG}: without egress-selector-config-file",
        f'without effect: {APISERVER_CONFIG}:4 "egressSelectorConfiguration:"',
    ]


def test_a_refused_call_of_which_nobody_knows_whether_it_was_tunnelled_is_a_warning(tmp_path: Path) -> None:
    findings = findings_of(with_tunnel(webhook(REFUSED)), tmp_path)
    assert (causes(findings), causes(findings, Outcome.WARNED)) == (set(), {"A22"})


@pytest.mark.parametrize("reason", [REFUSED, NO_ROUTE])
def test_what_only_its_use_could_show_is_skipped_where_the_use_is_not_known(tmp_path: Path, reason: str) -> None:
    findings = findings_of(with_tunnel(webhook(reason)), tmp_path)
    told = {findings[name].evidence for name in ("A16", "A17")}
    assert told == {"the bundle does not show whether kube-apiserver uses the tunnel"}


ON_NODE: Final = webhook("dial tcp 10.0.0.7:9443: connect: connection refused")


@pytest.mark.parametrize(
    "builder",
    [
        without_tunnel(ON_NODE).networks(),
        without_tunnel(ON_NODE).log("bootstrap/network/ip-route.txt", "default via 10.0.0.1", "10.0.0.0/16 dev ens3"),
        without_tunnel(ON_NODE).log("control-plane/10.0.0.7/journals/kubelet.log", "x"),
        with_tunnel(ON_NODE).networks().apiserver_config(*EGRESS_ARGUMENT),
    ],
)
def test_a_node_that_refuses_a_webhook_call_is_no_matter_of_the_tunnel(tmp_path: Path, builder: BundleBuilder) -> None:
    assert causes(findings_of(builder, tmp_path)) == {"A19"}


def test_the_blocked_call_is_also_found_in_the_journal_and_the_record(tmp_path: Path) -> None:
    message = webhook(NO_ROUTE).split("] ")[1].removeprefix(f"Failed calling webhook, failing closed {NAME}: ")
    created = f'"0000_30_crd.yaml": unable to create: Internal error occurred: {message}'
    assert causes(findings_of(without_tunnel().log(JOURNAL, created), tmp_path)) == {"A21"}
    stages = WITHOUT_TUNNEL[: WITHOUT_TUNNEL.index("cb-bootstrap")]
    failed = BundleBuilder(Record().start().done(*stages).fails("cb-bootstrap", created))
    assert causes(findings_of(failed, tmp_path)) == {"A21"}
