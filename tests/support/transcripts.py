"""Transcripts with fixed times, as input for views and reports."""

from contextlib import suppress
from typing import Final

from umbilical.lab.transcript import CallResult, Transcript, TranscriptView

NODES: Final = ("bootstrap", "master-0", "master-1", "master-2", "worker-0", "worker-1")
AGENTS: Final = NODES[1:]
TITLE: Final = "A webhook through the tunnel"
HOSTILE: Final = "CrashLoopBackOff <script>alert('1')</script> & \x1b[31mred\x1b[0m"
UNREACHABLE: Final = (
    'failed calling webhook "judge.lab.umbilical.dev": Post "https://judge.lab.svc:8443/validate?timeout=5s": '
    "dial tcp 10.92.4.2:8443: connect: network is unreachable"
)
DENIED: Final = (
    'admission webhook "judge.lab.umbilical.dev" denied the request: the webhook in the cluster says no: worker-0'
)


class TranscriptBuilder:
    """Adds steps to a transcript and moves its clock."""

    def __init__(self, title: str, view: TranscriptView | None) -> None:
        self._now = 1000.0
        self.transcript = Transcript(title, view, lambda: self._now)

    def add(self, title: str, seconds: float, *evidence: str, **changes: object) -> None:
        with self.transcript.step(title):
            self._now += seconds / 2
            for line in evidence:
                self.transcript.saw(line)
            if changes:
                self.transcript.shows(**changes)
            self._now += seconds / 2

    def fail(self, title: str, seconds: float, evidence: str) -> None:
        with suppress(RuntimeError), self.transcript.step(title):
            self.transcript.saw(evidence)
            self._now += seconds
            raise RuntimeError


def until_refused(builder: TranscriptBuilder) -> None:
    builder.add("6 nodes and their networks", 1.4, "bootstrap has no route to 10.92.0.0/16", nodes=NODES)
    builder.add("control plane on the bootstrap node", 9.6, "kube-apiserver v1.37.1 is ready", apiserver=True)
    builder.add("5 nodes join", 2.1, "Ready: master-0, master-1, master-2, worker-0, worker-1")
    builder.add("a webhook in a pod, failurePolicy Fail", 1.8, webhook="worker-0")
    builder.add(
        "without the tunnel the bootstrap kube-apiserver is blocked", 0.6, UNREACHABLE, call=CallResult.UNREACHABLE
    )


def until_allowed(builder: TranscriptBuilder) -> None:
    until_refused(builder)
    builder.add(
        "a production kube-apiserver on a master reaches the webhook directly",
        6.4,
        "kube-apiserver v1.37.1 on master-0, without an egress configuration",
        DENIED,
        production_apiserver=True,
        production_call=CallResult.DENIED,
    )
    builder.add(
        "the server's static pod, its socket and port",
        3.2,
        "openshift-bootstrap-konnectivity/konnectivity-server-bootstrap runs localhost/umbilical:lab",
        "srw------- 1 root root 0 /etc/kubernetes/bootstrap-configs/konnectivity-server.socket; LISTEN *:8091",
        server=True,
    )
    builder.add("agents on every node connect to the server", 2.7, f"connected: {', '.join(AGENTS)}", agents=AGENTS)
    builder.add(
        "through the tunnel the webhook allows a request", 0.3, "configmap/judged created", call=CallResult.ALLOWED
    )


def until_answered(builder: TranscriptBuilder) -> None:
    until_allowed(builder)
    builder.add("through the tunnel the webhook denies a request", 0.3, DENIED, call=CallResult.DENIED)
    builder.add("50 calls", 3.1, "50 calls, p50 6.1 ms, 1,204,331 bytes")
    builder.transcript.figures.update({"agents": "5", "calls": "50", "bytes": "1,204,331", "p50": "6.1 ms"})


def whole_transcript(view: TranscriptView | None = None) -> Transcript:
    """A demo in which every step succeeds."""
    builder = TranscriptBuilder(TITLE, view)
    until_answered(builder)
    gone = "daemonset/konnectivity-agent  deleted\nsecret/konnectivity-agent-certs  deleted"
    builder.add("the tunnel is removed: umbilical bootstrap teardown", 2.2, gone, server=False, agents=())
    builder.add("nothing of the tunnel is left", 0.9, "no server, no agent, no object, no key, no socket")
    builder.add(
        "the bootstrap kube-apiserver stops, production still works",
        1.9,
        "configmap/judged created",
        apiserver=False,
        call=CallResult.NONE,
        production_call=CallResult.ALLOWED,
    )
    return builder.transcript


def mended_transcript() -> Transcript:
    """A demo in which the server is killed and restarts."""
    builder = TranscriptBuilder("Breakage: server-kill", None)
    until_answered(builder)
    builder.add("the server is killed", 0.4, "signal 9", server=False, agents=(), call=CallResult.UNREACHABLE)
    builder.add("the server restarts", 4.0, "1 restart", server=True, agents=AGENTS, call=CallResult.ALLOWED)
    return builder.transcript


def failed_transcript(view: TranscriptView | None = None) -> Transcript:
    """A demo that ends with a failed step."""
    builder = TranscriptBuilder(TITLE, view)
    until_refused(builder)
    builder.fail("the server's static pod, its socket and port", 5.0, HOSTILE)
    return builder.transcript
