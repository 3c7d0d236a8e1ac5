"""Takes the tunnel's objects out of a cluster: asks for their deletion, follows it for a while, tells what holds them,
and which kube-apiservers still send their traffic by an egress selector, as far as the API shows it.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final

from umbilical.bootstrap.teardown_targets import LABEL, TeardownScope, TeardownTarget, find_targets, leftovers
from umbilical.cluster import objects
from umbilical.cluster.client import ApiClient, Clock, Json
from umbilical.cluster.objects import CONFIG_MAP, OPENSHIFT_KUBE_APISERVER, POD
from umbilical.fault import ApiRefused, ApiUnreachable, BootstrapError, ClusterError, Fault

ARGUMENT: Final = "egress-selector-config-file"
OPENSHIFT_NAMESPACE: Final = "openshift-kube-apiserver"
# By the labels that kubeadm and its kin, and OpenShift's operator, put on them.
PODS: Final = (("kube-system", "component=kube-apiserver"), (OPENSHIFT_NAMESPACE, "app=openshift-kube-apiserver"))


@dataclass
class EgressLeft:
    places: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    """What may not be looked at."""


async def egress_left(client: ApiClient) -> EgressLeft:
    """Name each place that still holds the argument. Raises ApiUnreachable: the API does not answer."""
    left = EgressLeft()
    for look in (_in_operator, _in_config_maps, _in_pods):
        try:
            left.places += await look(client)
        except ApiRefused as refusal:
            left.refusals.append(refusal.message)
    return left


async def _in_operator(client: ApiClient) -> list[str]:
    item = await objects.get(client, OPENSHIFT_KUBE_APISERVER, "cluster")
    if item is None:
        return []
    parts = ("observedConfig", "unsupportedConfigOverrides")
    return [
        f"kubeapiservers.operator.openshift.io/cluster spec.{part}"
        for part in parts
        if _has_argument(objects.field(item, "spec", part))
    ]


async def _in_config_maps(client: ApiClient) -> list[str]:
    """Look at the configuration to come, and at the ones that kube-apiservers run with now."""
    operator = await objects.get(client, OPENSHIFT_KUBE_APISERVER, "cluster")
    if operator is None:
        return []
    nodes = objects.items(objects.field(operator, "status", "nodeStatuses"))
    revisions = sorted({node["currentRevision"] for node in nodes if isinstance(node.get("currentRevision"), int)})
    found = []
    for name in ("config", *(f"config-{revision}" for revision in revisions)):
        item = await objects.get(client, CONFIG_MAP, name, OPENSHIFT_NAMESPACE)
        if item is not None and _has_argument(_parsed(objects.field(item, "data", "config.yaml"))):
            found.append(f"ConfigMap {OPENSHIFT_NAMESPACE}/{name}")
    return found


async def _in_pods(client: ApiClient) -> list[str]:
    found = []
    for namespace, labels in PODS:
        for pod in await objects.list_objects(client, POD, namespace, labels):
            if any(word.split("=")[0] == f"--{ARGUMENT}" for word in _words(pod)):
                found.append(f"Pod {namespace}/{objects.metadata(pod).get('name')}")
    return found


def _words(pod: Json) -> Iterator[str]:
    """Yield every word of every command line; OpenShift's are shell scripts in one argument."""
    for container in objects.items(objects.field(pod, "spec", "containers")):
        for key in ("command", "args"):
            for argument in container.get(key) or ():
                yield from str(argument).split()


def _parsed(text: Any) -> Any:
    import yaml

    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError):
        pass
    try:
        return yaml.safe_load(str(text))
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


def _has_argument(config: Any) -> bool:
    arguments = config.get("apiServerArguments") if isinstance(config, dict) else None
    return isinstance(arguments, dict) and bool(arguments.get(ARGUMENT))


POLL_SECONDS: Final = 2.0
CANNOT_LOOK: Final = "UMB607"


class DryRun(Enum):
    NONE = "none"
    CLIENT = "client"
    """Only look."""
    SERVER = "server"
    """Have the API check every deletion and do none."""


class TeardownState(Enum):
    GONE = "gone"
    REQUESTED = "deletion requested"
    WOULD_GO = "would be deleted"
    HELD = "still there"
    REFUSED = "refused"
    KEPT = "kept"


@dataclass(frozen=True)
class TeardownOptions:
    choice: TeardownScope = TeardownScope.AUTO
    namespace: str | None = None
    dry_run: DryRun = DryRun.NONE
    wait_seconds: float = 300.0
    """Nothing is waited for at 0."""


@dataclass(frozen=True)
class TeardownStep:
    """What became of one object."""

    subject: str
    state: TeardownState
    detail: str = ""


@dataclass
class TeardownReport:
    steps: list[TeardownStep] = field(default_factory=list)
    warnings: list[Fault] = field(default_factory=list)
    timed_out: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether all that was found is gone or on its way, and nothing kept us from looking."""
        left = any(step.state in (TeardownState.HELD, TeardownState.REFUSED) for step in self.steps)
        return not left and not any(warning.code == CANNOT_LOOK for warning in self.warnings)


@dataclass(frozen=True)
class TeardownProgress:
    """What is waited for, and until when."""

    remaining: dict[str, str]
    deadline: datetime


async def tear_down(
    client: ApiClient, options: TeardownOptions, clock: Clock, say: Callable[[TeardownProgress], None]
) -> TeardownReport:
    """Delete what is the tunnel's. Raises ApiUnreachable: no answer at first, when nothing was changed yet."""
    found = await find_targets(client, options.choice, options.namespace)
    report = TeardownReport(warnings=[_cannot_look(refusal) for refusal in found.refusals])
    going = [target for target in found.targets if await _request(client, target, options.dry_run, report)]
    if options.wait_seconds <= 0:
        report.steps += [TeardownStep(str(target), TeardownState.REQUESTED) for target in going]
    else:
        await _follow(client, going, options.wait_seconds, clock, say, report)
    order = {str(target): position for position, target in enumerate(found.targets)}
    report.steps.sort(key=lambda step: order.get(step.subject, len(order)))
    report.steps += [TeardownStep(str(target), TeardownState.KEPT, f"has no label {LABEL}") for target in found.kept]
    await _look_for_egress(client, report)
    return report


async def _request(client: ApiClient, target: TeardownTarget, dry_run: DryRun, report: TeardownReport) -> bool:
    """Ask for one deletion; return whether there is something to follow."""
    if dry_run is DryRun.CLIENT:
        report.steps.append(TeardownStep(str(target), TeardownState.WOULD_GO))
        return False
    if target.is_going and dry_run is DryRun.NONE:
        return True
    try:
        await _delete(client, target, dry_run)
    except ClusterError as fault:
        return await _refused(client, target, fault, report)
    if dry_run is DryRun.SERVER:
        report.steps.append(TeardownStep(str(target), TeardownState.WOULD_GO, "the API agrees"))
    return dry_run is DryRun.NONE


async def _delete(client: ApiClient, target: TeardownTarget, dry_run: DryRun) -> None:
    is_dry = dry_run is DryRun.SERVER
    await objects.delete(client, target.kind, target.name, target.namespace, target.uid, dry_run=is_dry)


async def _refused(client: ApiClient, target: TeardownTarget, fault: ClusterError, report: TeardownReport) -> bool:
    """Tell a race that does no harm from a refusal. A namespace that goes already answers with a conflict, too."""
    status = fault.status if isinstance(fault, ApiRefused) else None
    if status in (404, 409):
        with suppress(ClusterError):
            if not await leftovers(client, [target]):
                report.steps.append(TeardownStep(str(target), TeardownState.GONE))
                return False
            if status == 409:
                return True
    report.steps.append(TeardownStep(str(target), TeardownState.REFUSED, fault.why))
    remedy = f"may you? kubectl auth can-i delete {target.kind.plural}; then run this again"
    report.warnings.append(BootstrapError("UMB606", f"{target} is not deleted", fault.why, remedy))
    return False


async def _follow(
    client: ApiClient,
    going: list[TeardownTarget],
    wait_seconds: float,
    clock: Clock,
    say: Callable[[TeardownProgress], None],
    report: TeardownReport,
) -> None:
    """Wait until all of it is gone, or the time is over."""
    end = clock.monotonic() + wait_seconds
    deadline = clock.now() + timedelta(seconds=wait_seconds)
    remaining = await _remaining(client, going)
    while remaining and clock.monotonic() < end:
        say(TeardownProgress(remaining, deadline))
        await clock.sleep(min(POLL_SECONDS, max(0.0, end - clock.monotonic())))
        remaining = await _remaining(client, going)
    report.steps += [TeardownStep(name, TeardownState.GONE) for name in map(str, going) if name not in remaining]
    report.steps += [TeardownStep(name, TeardownState.HELD, why) for name, why in remaining.items()]
    if remaining:
        report.timed_out = True
        report.warnings.append(_timed_out(remaining, wait_seconds))


async def _remaining(client: ApiClient, going: list[TeardownTarget]) -> dict[str, str]:
    try:
        return await leftovers(client, going)
    except ApiUnreachable as fault:
        # API servers restart while a control plane settles: that is a reason to ask again, not to give up.
        return {str(target): f"not known: {fault.why}" for target in going}


async def _look_for_egress(client: ApiClient, report: TeardownReport) -> None:
    try:
        left = await egress_left(client)
    except ApiUnreachable as fault:
        left = EgressLeft(refusals=[fault.why])
    if left.places:
        what = "a kube-apiserver still sends its traffic by an egress selector"
        remedy = f"if that is this tunnel's, take {ARGUMENT} away there: without the server its webhooks fail"
        report.warnings.append(BootstrapError("UMB609", what, ", ".join(left.places), remedy))
    if left.refusals:
        what = "it cannot be told whether a kube-apiserver still uses an egress selector"
        remedy = f"look for {ARGUMENT} in kube-apiserver's arguments yourself"
        report.warnings.append(BootstrapError("UMB609", what, "; ".join(left.refusals), remedy))


def _cannot_look(refusal: ApiRefused) -> BootstrapError:
    what = f"{refusal.what.partition(':')[0]} was refused: what lies there is not known"
    return BootstrapError(CANNOT_LOOK, what, refusal.message, "run this again with the rights that are named above")


def _timed_out(remaining: dict[str, str], wait_seconds: float) -> BootstrapError:
    names = ", ".join(remaining)
    why = "; ".join(dict.fromkeys(remaining.values()))
    remedy = "remove what holds it; the deletion itself goes on. Then look again: umbilical bootstrap teardown"
    return BootstrapError("UMB608", f"still there after {wait_seconds:g} s: {names}", why, remedy)
