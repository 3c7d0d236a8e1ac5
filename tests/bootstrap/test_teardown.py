"""Deleting and following: what is asked for, in which order, and what comes of refusals, races and silence."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.object_store import LABELLED, ObjectStore, thing, tunnel_store, with_client
from tests.support.scripted_api import Answer, status_answer

from umbilical.bootstrap.teardown import (
    DryRun,
    TeardownOptions,
    TeardownProgress,
    TeardownReport,
    TeardownState,
    tear_down,
)
from umbilical.bootstrap.teardown_targets import FoundTargets, TeardownScope, find_targets
from umbilical.cluster.client import ClientClock
from umbilical.fault import ApiUnreachable

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
AGENTS = "/apis/apps/v1/namespaces/openshift-bootstrap-konnectivity/daemonsets/konnectivity-agent"
CERTIFICATES = "/api/v1/namespaces/openshift-bootstrap-konnectivity/secrets/konnectivity-agent-certs"
PLACE = "/api/v1/namespaces/openshift-bootstrap-konnectivity"


@dataclass
class Bench:
    """A store, and time that passes only when somebody sleeps."""

    store: ObjectStore
    folder: Path
    meanwhile: Callable[[], object] = lambda: None
    seconds: float = 0.0
    progress: list[TeardownProgress] = field(default_factory=list)

    def tear_down(self, **options: object) -> TeardownReport:
        clock = ClientClock(lambda: NOW, lambda: self.seconds, self._sleep)
        wishes = TeardownOptions(**options)  # type: ignore[arg-type]
        return with_client(
            self.store, self.folder, lambda client: tear_down(client, wishes, clock, self.progress.append), 2.0
        )

    async def _sleep(self, seconds: float) -> None:
        self.seconds += seconds
        self.meanwhile()


@pytest.fixture
def testbed(tmp_path: Path) -> Bench:
    return Bench(tunnel_store(), tmp_path)


def states(report: TeardownReport) -> dict[str, TeardownState]:
    return {step.subject.split(" ")[0]: step.state for step in report.steps}


def test_all_of_it_goes_in_order_each_by_its_own_uid(testbed: Bench) -> None:
    report = testbed.tear_down()
    assert testbed.store.deleted == [AGENTS, CERTIFICATES, PLACE]
    bodies = [request.body for request in testbed.store.requests if request.method == "DELETE"]
    assert [body["preconditions"]["uid"] for body in bodies] == ["d", "s", "n"]
    assert {body["propagationPolicy"] for body in bodies} == {"Background"}
    assert states(report) == dict.fromkeys(("DaemonSet", "Secret", "Namespace"), TeardownState.GONE)
    assert report.is_complete
    assert report.warnings == []
    assert testbed.seconds == 0


def test_a_dry_run_asks_for_nothing_or_says_so_in_every_request(testbed: Bench) -> None:
    report = testbed.tear_down(dry_run=DryRun.CLIENT)
    assert testbed.store.deleted == []
    assert set(states(report).values()) == {TeardownState.WOULD_GO}
    report = testbed.tear_down(dry_run=DryRun.SERVER)
    dry = [request.body["dryRun"] for request in testbed.store.requests if request.method == "DELETE"]
    assert dry == [["All"]] * 3
    assert len(testbed.store.objects) == 3
    assert set(states(report).values()) == {TeardownState.WOULD_GO}


def test_a_deletion_is_followed_until_it_is_done(testbed: Bench) -> None:
    testbed.store.held.add(PLACE)
    testbed.meanwhile = lambda: testbed.store.objects.pop(PLACE, None) if testbed.seconds > 5 else None
    report = testbed.tear_down(wait_seconds=60.0)
    assert states(report)["Namespace"] is TeardownState.GONE
    assert testbed.seconds == 6
    assert [progress.deadline for progress in testbed.progress] == [NOW + timedelta(seconds=60)] * 3
    assert list(testbed.progress[0].remaining) == ["Namespace openshift-bootstrap-konnectivity"]


def test_following_ends_with_its_time_and_says_what_holds(testbed: Bench) -> None:
    testbed.store.held.add(PLACE)
    testbed.store.objects[PLACE]["metadata"]["finalizers"] = ["example.test/hold"]
    report = testbed.tear_down(wait_seconds=5.0)
    assert testbed.seconds == 5
    assert report.timed_out
    assert not report.is_complete
    (warning,) = report.warnings
    assert warning.code == "UMB608"
    assert "example.test/hold" in warning.why


def test_without_waiting_the_request_is_all(testbed: Bench) -> None:
    testbed.store.held.add(PLACE)
    report = testbed.tear_down(wait_seconds=0.0)
    assert set(states(report).values()) == {TeardownState.REQUESTED}
    assert report.is_complete
    assert not report.timed_out


def test_what_goes_already_is_followed_and_not_asked_for_again(testbed: Bench) -> None:
    testbed.store.objects[PLACE]["metadata"]["deletionTimestamp"] = "2026-11-15T11:00:00Z"
    testbed.meanwhile = lambda: testbed.store.objects.pop(PLACE, None)
    report = testbed.tear_down()
    assert testbed.store.deleted == [AGENTS, CERTIFICATES]
    assert states(report)["Namespace"] is TeardownState.GONE


def test_a_refusal_is_a_warning_and_the_others_are_tried(testbed: Bench) -> None:
    testbed.store.faults["DELETE", AGENTS] = status_answer(403, "Forbidden", "you may not")
    report = testbed.tear_down()
    assert states(report) == {
        "DaemonSet": TeardownState.REFUSED,
        "Secret": TeardownState.GONE,
        "Namespace": TeardownState.GONE,
    }
    assert not report.is_complete
    assert [(warning.code, warning.why) for warning in report.warnings] == [("UMB606", "you may not")]


def test_silence_of_the_api_in_between_is_a_warning_and_the_others_are_tried(testbed: Bench) -> None:
    testbed.store.faults["DELETE", AGENTS] = Answer(b"", stays_open=True)
    report = testbed.tear_down()
    assert states(report)["DaemonSet"] is TeardownState.REFUSED
    assert states(report)["Namespace"] is TeardownState.GONE


def test_an_object_that_vanished_meanwhile_is_gone(testbed: Bench) -> None:
    testbed.store.faults["DELETE", CERTIFICATES] = status_answer(404, "NotFound")
    del testbed.store.objects[CERTIFICATES]
    testbed.store.faults["GET", CERTIFICATES] = status_answer(404, "NotFound")
    assert testbed.tear_down().is_complete


def test_an_object_that_took_the_name_meanwhile_stays(testbed: Bench) -> None:
    testbed.store.swaps[AGENTS] = thing("another")
    report = testbed.tear_down()
    assert states(report)["DaemonSet"] is TeardownState.GONE
    assert testbed.store.objects[AGENTS] == thing("another")
    assert report.is_complete


def test_a_conflict_about_an_object_that_goes_already_is_no_refusal(testbed: Bench) -> None:
    testbed.store.faults["DELETE", PLACE] = status_answer(409, "Conflict", "being terminated")
    testbed.meanwhile = lambda: testbed.store.objects.pop(PLACE, None)
    report = testbed.tear_down()
    assert states(report)["Namespace"] is TeardownState.GONE
    assert testbed.seconds > 0
    assert report.is_complete


def test_an_api_that_restarts_while_we_wait_is_asked_again(testbed: Bench) -> None:
    testbed.store.held.add(PLACE)
    broken = Answer(b"starting", 200)

    def happen() -> None:
        if testbed.seconds < 5:
            testbed.store.faults["GET", PLACE] = broken
        else:
            testbed.store.faults.pop(("GET", PLACE), None)
            testbed.store.objects.pop(PLACE, None)

    testbed.meanwhile = happen
    report = testbed.tear_down(wait_seconds=60.0)
    assert states(report)["Namespace"] is TeardownState.GONE
    assert any("not known" in why for progress in testbed.progress for why in progress.remaining.values())


def test_an_api_that_never_answers_is_raised(testbed: Bench) -> None:
    testbed.store.faults["GET", AGENTS] = Answer(b"", stays_open=True)
    with pytest.raises(ApiUnreachable):
        testbed.tear_down()
    assert testbed.store.deleted == []


def test_a_right_that_is_missing_is_told(testbed: Bench) -> None:
    testbed.store.faults["GET", CERTIFICATES] = status_answer(403, "Forbidden", "no secrets for you")
    report = testbed.tear_down()
    assert not report.is_complete
    assert [warning.code for warning in report.warnings] == ["UMB607"]


def test_a_kube_apiserver_that_still_uses_an_egress_selector_is_a_warning_alone(tmp_path: Path) -> None:
    testbed = Bench(ObjectStore(), tmp_path)
    pod = {"metadata": {"name": "kas"}, "spec": {"containers": [{"args": ["--egress-selector-config-file=/e"]}]}}
    testbed.store.objects["/api/v1/namespaces/kube-system/pods/kas"] = pod
    report = testbed.tear_down()
    assert report.steps == []
    assert [(warning.code, warning.why) for warning in report.warnings] == [("UMB609", "Pod kube-system/kas")]
    assert report.is_complete


@pytest.mark.parametrize("fault", [status_answer(403, "Forbidden", "no pods"), Answer(b"", stays_open=True)])
def test_that_it_cannot_be_told_is_a_warning_alone(fault: Answer, tmp_path: Path) -> None:
    testbed = Bench(ObjectStore(), tmp_path)
    testbed.store.faults["GET", "/api/v1/namespaces/kube-system/pods"] = fault
    report = testbed.tear_down()
    assert [warning.code for warning in report.warnings] == ["UMB609"]
    assert "were not checked" in report.warnings[0].what
    assert report.is_complete


SEED_SET = "/apis/apps/v1/namespaces/kube-system/daemonsets/konnectivity-agent"
SEED_SECRET = "/api/v1/namespaces/kube-system/secrets/konnectivity-agent-certs"


def found(
    store: ObjectStore, folder: Path, choice: TeardownScope = TeardownScope.AUTO, namespace: str | None = None
) -> FoundTargets:
    return with_client(store, folder, lambda client: find_targets(client, choice, namespace))


def names(result: FoundTargets) -> list[str]:
    return [str(target) for target in result.targets]


def test_labelled_objects_come_in_the_order_of_their_deletion(tmp_path: Path) -> None:
    store = tunnel_store()
    store.objects |= {SEED_SET: thing("a", **LABELLED), SEED_SECRET: thing("b", **LABELLED)}
    assert names(found(store, tmp_path)) == [
        "DaemonSet openshift-bootstrap-konnectivity/konnectivity-agent",
        "DaemonSet kube-system/konnectivity-agent",
        "Secret openshift-bootstrap-konnectivity/konnectivity-agent-certs",
        "Secret kube-system/konnectivity-agent-certs",
        "Namespace openshift-bootstrap-konnectivity",
    ]


@pytest.mark.parametrize(
    "labels", [{}, {"openshift.io/bootstrap-only": "false"}, {"openshift.io/bootstrap-only": True}]
)
def test_what_lacks_the_label_is_kept(labels: dict[str, object], tmp_path: Path) -> None:
    store = ObjectStore({SEED_SET: thing("a", labels=labels), PLACE: thing("n", labels=labels)})
    result = found(store, tmp_path)
    assert result.targets == []
    assert {str(target) for target in result.kept} == {
        "DaemonSet kube-system/konnectivity-agent",
        "Namespace openshift-bootstrap-konnectivity",
    }


def test_the_seed_shape_goes_by_name_and_never_takes_the_namespace(tmp_path: Path) -> None:
    system = thing("k", **LABELLED)
    store = ObjectStore({SEED_SET: thing("a"), SEED_SECRET: thing("b"), "/api/v1/namespaces/kube-system": system})
    assert names(found(store, tmp_path, TeardownScope.SEED)) == [
        "DaemonSet kube-system/konnectivity-agent",
        "Secret kube-system/konnectivity-agent-certs",
    ]


def test_the_seed_shape_in_another_namespace_takes_it_only_with_the_label(tmp_path: Path) -> None:
    store = tunnel_store("elsewhere")
    store.objects["/api/v1/namespaces/elsewhere"] = thing("n")
    result = found(store, tmp_path, TeardownScope.SEED, "elsewhere")
    assert [target.kind.name for target in result.targets] == ["DaemonSet", "Secret"]
    assert [str(target) for target in result.kept] == ["Namespace elsewhere"]


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public", "kube-node-lease"])
def test_no_label_makes_a_namespace_of_kubernetes_a_target(name: str, tmp_path: Path) -> None:
    store = ObjectStore({f"/api/v1/namespaces/{name}": thing("k", **LABELLED)})
    assert found(store, tmp_path, TeardownScope.AUTO, name) == FoundTargets()


def test_a_shape_is_looked_for_in_its_own_place_only(tmp_path: Path) -> None:
    store = tunnel_store()
    store.objects[SEED_SET] = thing("a", **LABELLED)
    assert "kube-system" not in " ".join(names(found(store, tmp_path, TeardownScope.OPENSHIFT)))


def test_a_refusal_is_kept_and_the_rest_is_looked_at(tmp_path: Path) -> None:
    store = tunnel_store()
    store.faults["GET", CERTIFICATES] = status_answer(403, "Forbidden")
    result = found(store, tmp_path)
    assert [target.kind.name for target in result.targets] == ["DaemonSet", "Namespace"]
    assert [refusal.status for refusal in result.refusals] == [403]


def test_a_secrets_content_is_not_asked_for(tmp_path: Path) -> None:
    store = tunnel_store()
    found(store, tmp_path)
    accepts = [request.headers["accept"] for request in store.requests if "/secrets/" in request.path]
    assert accepts
    assert all("PartialObjectMetadata" in accept for accept in accepts)
