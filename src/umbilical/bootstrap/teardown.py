"""Deletes the tunnel's objects in a cluster, waits for the deletion, and reports what keeps them and which
kube-apiservers still use an egress selector, as far as the API shows it.
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
from umbilical.cluster.client import ApiClient, ClientClock, Json
from umbilical.cluster.objects import CONFIG_MAP, OPENSHIFT_KUBE_APISERVER, POD
from umbilical.fault import ApiRefused, ApiUnreachable, BootstrapError, ClusterError, Fault

ARGUMENT: Final = "egress-selector-config-file"
OPENSHIFT_NAMESPACE: Final = "openshift-kube-apiserver"
# Labels of kubeadm and similar tools, and of OpenShift's operator.
PODS: Final = (("kube-system", "component=kube-apiserver"), (OPENSHIFT_NAMESPACE, "app=openshift-kube-apiserver"))


@dataclass
class EgressLeft:
    places: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    """Messages of requests that the API refused."""


async def egress_left(client: ApiClient) -> EgressLeft:
    """List the objects that still hold the argument. Raises ApiUnreachable: the API does not answer."""
    left = EgressLeft()
    for find in (_in_operator, _in_config_maps, _in_pods):
        try:
            left.places += await find(client)
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
    """Search the next configuration, and the revisions that kube-apiservers run with now."""
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
    """Yield every word of every command line; OpenShift passes a shell script as one argument."""
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
NOT_READABLE: Final = "UMB607"


class DryRun(Enum):
    NONE = "none"
    CLIENT = "client"
    """Only list."""
    SERVER = "server"
    """Let the API validate each deletion without doing it."""


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
    """0 does not wait."""


@dataclass(frozen=True)
class TeardownStep:
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
        """Whether all found objects are gone or being deleted, and all could be read."""
        left = any(step.state in (TeardownState.HELD, TeardownState.REFUSED) for step in self.steps)
        return not left and not any(warning.code == NOT_READABLE for warning in self.warnings)


@dataclass(frozen=True)
class TeardownProgress:
    remaining: dict[str, str]
    deadline: datetime


async def tear_down(
    client: ApiClient, options: TeardownOptions, clock: ClientClock, show: Callable[[TeardownProgress], None]
) -> TeardownReport:
    """Delete the tunnel's objects. Raises ApiUnreachable: the first request had no answer; nothing was changed."""
    found = await find_targets(client, options.choice, options.namespace)
    report = TeardownReport(warnings=[_not_readable(refusal) for refusal in found.refusals])
    going = [target for target in found.targets if await _request(client, target, options.dry_run, report)]
    if options.wait_seconds <= 0:
        report.steps += [TeardownStep(str(target), TeardownState.REQUESTED) for target in going]
    else:
        await _follow(client, going, options.wait_seconds, clock, show, report)
    order = {str(target): position for position, target in enumerate(found.targets)}
    report.steps.sort(key=lambda step: order.get(step.subject, len(order)))
    report.steps += [TeardownStep(str(target), TeardownState.KEPT, f"has no label {LABEL}") for target in found.kept]
    await _look_for_egress(client, report)
    return report


async def _request(client: ApiClient, target: TeardownTarget, dry_run: DryRun, report: TeardownReport) -> bool:
    """Request one deletion; return whether to wait for it."""
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
        report.steps.append(TeardownStep(str(target), TeardownState.WOULD_GO, "accepted by the API"))
    return dry_run is DryRun.NONE


async def _delete(client: ApiClient, target: TeardownTarget, dry_run: DryRun) -> None:
    is_dry = dry_run is DryRun.SERVER
    await objects.delete(client, target.kind, target.name, target.namespace, target.uid, dry_run=is_dry)


async def _refused(client: ApiClient, target: TeardownTarget, fault: ClusterError, report: TeardownReport) -> bool:
    """Distinguish a harmless race from a refusal. A namespace that is being deleted also answers with a conflict."""
    status = fault.status if isinstance(fault, ApiRefused) else None
    if status in (404, 409):
        with suppress(ClusterError):
            if not await leftovers(client, [target]):
                report.steps.append(TeardownStep(str(target), TeardownState.GONE))
                return False
            if status == 409:
                return True
    report.steps.append(TeardownStep(str(target), TeardownState.REFUSED, fault.why))
    remedy = f"kubectl auth can-i delete {target.kind.plural}; then run the teardown again"
    report.warnings.append(BootstrapError("UMB606", f"{target} was not deleted", fault.why, remedy))
    return False


async def _follow(
    client: ApiClient,
    going: list[TeardownTarget],
    wait_seconds: float,
    clock: ClientClock,
    show: Callable[[TeardownProgress], None],
    report: TeardownReport,
) -> None:
    """Wait until all objects are gone or the time is over."""
    end = clock.monotonic() + wait_seconds
    deadline = clock.now() + timedelta(seconds=wait_seconds)
    remaining = await _remaining(client, going)
    while remaining and clock.monotonic() < end:
        show(TeardownProgress(remaining, deadline))
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
        # API servers restart during an installation: retry instead of giving up.
        return {str(target): f"not known: {fault.why}" for target in going}


async def _look_for_egress(client: ApiClient, report: TeardownReport) -> None:
    try:
        left = await egress_left(client)
    except ApiUnreachable as fault:
        left = EgressLeft(refusals=[fault.why])
    if left.places:
        what = "a kube-apiserver still uses an egress selector"
        remedy = f"if it belongs to this tunnel, remove {ARGUMENT} there: without the server webhook calls fail"
        report.warnings.append(BootstrapError("UMB609", what, ", ".join(left.places), remedy))
    if left.refusals:
        what = "kube-apiservers were not checked for an egress selector"
        remedy = f"search for {ARGUMENT} in kube-apiserver's arguments by hand"
        report.warnings.append(BootstrapError("UMB609", what, "; ".join(left.refusals), remedy))


def _not_readable(refusal: ApiRefused) -> BootstrapError:
    what = f"the API refused {refusal.what.partition(':')[0]}: leftovers there are not known"
    return BootstrapError(NOT_READABLE, what, refusal.message, "run the teardown again with that permission")


def _timed_out(remaining: dict[str, str], wait_seconds: float) -> BootstrapError:
    names = ", ".join(remaining)
    why = "; ".join(dict.fromkeys(remaining.values()))
    remedy = "remove the named cause; the deletion continues. Then run umbilical bootstrap teardown again"
    return BootstrapError("UMB608", f"timed out after {wait_seconds:g} s deleting {names}", why, remedy)
