"""Stories as input for views and reports: what a scenario says, at times that are written down here."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from umbilical.lab.story import Call, Story, Teller

NODES: Final = ("bootstrap", "master-0", "master-1", "master-2", "worker-0", "worker-1")
AGENTS: Final = NODES[1:]
UNREACHABLE: Final = (
    'failed calling webhook "judge.lab.umbilical.dev": Post "https://judge.lab.svc:8443/validate?timeout=5s": '
    "dial tcp 10.92.4.2:8443: connect: network is unreachable"
)
DENIED: Final = (
    'admission webhook "judge.lab.umbilical.dev" denied the request: the webhook in the cluster says no: worker-0'
)


@dataclass
class ScriptedClock:
    """Stands still until it is moved."""

    seconds: float = 1000.0

    def __call__(self) -> float:
        return self.seconds

    def pass_by(self, seconds: float) -> None:
        self.seconds += seconds


class Narrator:
    """Tells a story step by step while its clock is moved."""

    def __init__(self, title: str, teller: Teller | None, pause: Callable[[float], None] | None = None) -> None:
        self._clock = ScriptedClock()
        self._pause = pause
        self.story = Story(title, teller, self._clock)

    def tell(self, title: str, seconds: float, *evidence: str, **changes: object) -> None:
        with self.story.step(title):
            self._pass(seconds / 2)
            for line in evidence:
                self.story.saw(line)
            if changes:
                self.story.shows(**changes)
            self._pass(seconds / 2)

    def fail(self, title: str, seconds: float, evidence: str, error: BaseException) -> None:
        with self.story.step(title):
            self.story.saw(evidence)
            self._pass(seconds)
            raise error

    def _pass(self, seconds: float) -> None:
        self._clock.pass_by(seconds)
        if self._pause is not None:
            self._pause(seconds)


def until_refused(narrator: Narrator) -> None:
    narrator.tell("Six machines and their networks come up", 1.4, "bootstrap has no route to 10.92.0.0/16", nodes=NODES)
    narrator.tell(
        "The bootstrap control plane starts: etcd, then kube-apiserver",
        9.6,
        "https://10.91.0.10:6443/readyz: ok",
        apiserver=True,
    )
    narrator.tell("Five nodes join", 2.1, "node/master-0 Ready", "node/worker-1 Ready")
    narrator.tell("A webhook with failurePolicy Fail runs in a pod", 1.8, "pod judge on worker-0", webhook="worker-0")
    narrator.tell("Without the tunnel, the call to the webhook fails", 0.6, UNREACHABLE, call=Call.UNREACHABLE)


def until_allowed(narrator: Narrator) -> None:
    until_refused(narrator)
    narrator.tell(
        "The server's static pod runs beside kube-apiserver",
        3.2,
        "pod konnectivity-server-bootstrap: Running, 0 restarts",
        "socket /etc/kubernetes/bootstrap-configs/konnectivity-server.socket, mode 0600",
        "LISTEN 10.91.0.10:8091",
        server=True,
        call=Call.NONE,
    )
    narrator.tell(
        "Agents connect from every node", 2.7, *(f"agent on {node}: connected" for node in AGENTS), agents=AGENTS
    )
    narrator.tell("Through the tunnel, the webhook allows", 0.3, "configmap/welcome created", call=Call.ALLOWED)


def whole_story(teller: Teller | None = None, pause: Callable[[float], None] | None = None) -> Story:
    """Tell scenario 1 as it goes well."""
    narrator = Narrator("A webhook through the tunnel", teller, pause)
    until_allowed(narrator)
    narrator.tell("Through the tunnel, the webhook denies by its own word", 0.3, DENIED, call=Call.DENIED)
    narrator.tell(
        "A production kube-apiserver on master-0 reaches it directly",
        6.4,
        "configmap/direct created",
        production_apiserver=True,
        production_call=Call.ALLOWED,
    )
    narrator.tell(
        "100 calls more, each through a tunnel of its own", 3.1, "100 allowed, none failed", call=Call.ALLOWED
    )
    narrator.tell(
        "Teardown: umbilical bootstrap teardown",
        2.2,
        "daemonset/konnectivity-agent  deleted\nsecret/konnectivity-agent-certs  deleted",
        server=False,
        agents=(),
        call=Call.NONE,
    )
    narrator.tell(
        "Nothing of the tunnel is found, production still works",
        0.9,
        "no object, no file, no port",
        production_call=Call.ALLOWED,
    )
    narrator.story.figures.update(
        {
            "agents": "5",
            "calls": "103, none lost",
            "bytes": "1,204,331 through the tunnel",
            "p50": "6.1 ms",
            "p99": "11.8 ms",
        }
    )
    return narrator.story


def broken_story(error: BaseException, teller: Teller | None = None) -> Story:
    """Tell it up to a step that fails."""
    narrator = Narrator("A webhook through the tunnel", teller)
    until_refused(narrator)
    try:
        narrator.fail(
            "The server's static pod runs beside kube-apiserver",
            5.0,
            "CrashLoopBackOff <script>alert(1)</script>",
            error,
        )
    except type(error):
        pass
    return narrator.story
