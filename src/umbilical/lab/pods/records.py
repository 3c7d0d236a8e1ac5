"""What is known of pods that run here: changed by their workers, read by whoever reports it."""

from dataclasses import dataclass, field

from umbilical.lab.pods.spec import Container, Pod

CREATING = "ContainerCreating"
INITIALIZING = "PodInitializing"
CRASH_LOOP = "CrashLoopBackOff"


@dataclass(frozen=True)
class Idle:
    """Nothing runs, and something is awaited."""

    reason: str = CREATING
    message: str = ""


@dataclass(frozen=True)
class Running:
    since: float
    """Seconds of the epoch, as everywhere here."""


@dataclass(frozen=True)
class Ended:
    exit_code: int
    """Negative: the signal that ended it."""
    since: float
    until: float
    message: str = ""

    @property
    def reason(self) -> str:
        return "Completed" if self.exit_code == 0 else "Error"


@dataclass
class ContainerRecord:
    name: str
    image: str
    state: Idle | Running | Ended = Idle()
    """Ended only if there is no next run."""
    last: Ended | None = None
    """The run before."""
    restarts: int = 0
    pid: int | None = None
    is_started: bool = False
    """Its startup probe, if any, was answered once in this run."""
    is_ready: bool = False


@dataclass
class PodRecord:
    pod: Pod
    node_ip: str
    since: float
    addresses: tuple[str, ...] = ()
    is_initialized: bool = False
    containers: list[ContainerRecord] = field(default_factory=list)
    init_containers: list[ContainerRecord] = field(default_factory=list)
    trouble: str = ""
    """Why it does not get on, in one line."""

    @property
    def is_ready(self) -> bool:
        return self.is_initialized and all(container.is_ready for container in self.containers)


def record_of(pod: Pod, node_ip: str, now: float) -> PodRecord:
    containers, init_containers = (
        [_container_record(container, reason) for container in found]
        for found, reason in (
            (pod.containers, INITIALIZING if pod.init_containers else CREATING),
            (pod.init_containers, CREATING),
        )
    )
    return PodRecord(pod, node_ip, now, containers=containers, init_containers=init_containers)


def _container_record(container: Container, reason: str) -> ContainerRecord:
    return ContainerRecord(container.name, container.image, Idle(reason))
