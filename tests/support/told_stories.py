"""Stories as input for views and reports: what a scenario says, at times that are written down here."""

from contextlib import suppress
from typing import Final

from umbilical.lab.story import Call, Story, Teller

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


class Narrator:
    """Tells a story step by step while its clock is moved."""

    def __init__(self, title: str, teller: Teller | None) -> None:
        self._now = 1000.0
        self.story = Story(title, teller, lambda: self._now)

    def tell(self, title: str, seconds: float, *evidence: str, **changes: object) -> None:
        with self.story.step(title):
            self._now += seconds / 2
            for line in evidence:
                self.story.saw(line)
            if changes:
                self.story.shows(**changes)
            self._now += seconds / 2

    def fail(self, title: str, seconds: float, evidence: str) -> None:
        with suppress(RuntimeError), self.story.step(title):
            self.story.saw(evidence)
            self._now += seconds
            raise RuntimeError


def until_refused(narrator: Narrator) -> None:
    narrator.tell("6 nodes and their networks", 1.4, "bootstrap has no route to 10.92.0.0/16", nodes=NODES)
    narrator.tell("control plane on the bootstrap node", 9.6, "kube-apiserver v1.36.3 is ready", apiserver=True)
    narrator.tell("5 nodes join", 2.1, "Ready: master-0, master-1, master-2, worker-0, worker-1")
    narrator.tell("a webhook in a pod, failurePolicy Fail", 1.8, webhook="worker-0")
    narrator.tell("without the tunnel the bootstrap kube-apiserver is blocked", 0.6, UNREACHABLE, call=Call.UNREACHABLE)


def until_allowed(narrator: Narrator) -> None:
    until_refused(narrator)
    narrator.tell(
        "a production kube-apiserver on a master reaches the webhook directly",
        6.4,
        "kube-apiserver v1.36.3 on master-0, without an egress configuration",
        DENIED,
        production_apiserver=True,
        production_call=Call.DENIED,
    )
    narrator.tell(
        "the server's static pod, its socket and port",
        3.2,
        "openshift-bootstrap-konnectivity/konnectivity-server-bootstrap runs localhost/umbilical:lab",
        "srw------- 1 root root 0 /etc/kubernetes/bootstrap-configs/konnectivity-server.socket; LISTEN *:8091",
        server=True,
    )
    narrator.tell("agents on every node dial back", 2.7, f"connected: {', '.join(AGENTS)}", agents=AGENTS)
    narrator.tell("through the tunnel the webhook allows", 0.3, "configmap/judged created", call=Call.ALLOWED)


def until_answered(narrator: Narrator) -> None:
    until_allowed(narrator)
    narrator.tell("and denies, by its own word", 0.3, DENIED, call=Call.DENIED)
    narrator.tell("50 calls", 3.1, "50 calls, p50 6.1 ms, 1,204,331 bytes")
    narrator.story.figures.update({"agents": "5", "calls": "50", "bytes": "1,204,331", "p50": "6.1 ms"})


def whole_story(teller: Teller | None = None) -> Story:
    """Tell a webhook through the tunnel as it goes well."""
    narrator = Narrator(TITLE, teller)
    until_answered(narrator)
    gone = "daemonset/konnectivity-agent  deleted\nsecret/konnectivity-agent-certs  deleted"
    narrator.tell("the cut: umbilical bootstrap teardown", 2.2, gone, server=False, agents=())
    narrator.tell("nothing of the tunnel is left", 0.9, "no server, no agent, no object, no key, no socket")
    narrator.tell(
        "the bootstrap kube-apiserver goes, production is still well",
        1.9,
        "configmap/judged created",
        apiserver=False,
        call=Call.NONE,
        production_call=Call.ALLOWED,
    )
    return narrator.story


def mended_story() -> Story:
    """Tell how a server is killed and comes back."""
    narrator = Narrator("A breakage: server-kill", None)
    until_answered(narrator)
    narrator.tell("the server is killed", 0.4, "signal 9", server=False, agents=(), call=Call.UNREACHABLE)
    narrator.tell("it comes back by itself", 4.0, "1 restart", server=True, agents=AGENTS, call=Call.ALLOWED)
    return narrator.story


def broken_story(teller: Teller | None = None) -> Story:
    """Tell it up to a step that fails."""
    narrator = Narrator(TITLE, teller)
    until_refused(narrator)
    narrator.fail("the server's static pod, its socket and port", 5.0, HOSTILE)
    return narrator.story
