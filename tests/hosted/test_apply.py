"""Objects are applied to a real cluster in order; a refused one is reported and does not stop the others."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.control_plane import PROGRAMS, ControlPlane

from umbilical.cluster.apply import ManifestDocument, read_document
from umbilical.fault import ClusterError
from umbilical.hosted.apply import ApplyOptions, ApplyOutcome, ApplyResult, apply_documents

pytestmark = pytest.mark.real(*PROGRAMS)


def document(kind: str, name: str, namespace: str | None, **content: Any) -> ManifestDocument:
    versions = {"Deployment": "apps/v1", "ServiceMonitor": "monitoring.coreos.com/v1"}
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    found = read_document({"apiVersion": versions.get(kind, "v1"), "kind": kind, "metadata": meta, **content})
    assert found is not None
    return found


def applied(
    plane: ControlPlane, documents: list[ManifestDocument], options: ApplyOptions | None = None
) -> list[ApplyResult]:
    told: list[ApplyResult] = []
    work = apply_documents("hosted", plane.kubeconfig, documents, options or ApplyOptions(), told.append)
    steps = asyncio.run(asyncio.wait_for(work, 60))
    assert told == steps
    return steps


def outcomes(steps: list[ApplyResult]) -> list[ApplyOutcome]:
    return [step.outcome for step in steps]


def test_a_namespace_and_what_is_in_it_are_created_then_unchanged(plane: ControlPlane) -> None:
    documents = [
        document("Namespace", "apply-a", None),
        document("Secret", "s", "apply-a", stringData={"tls.key": "a private key"}),
    ]
    assert outcomes(applied(plane, documents)) == [ApplyOutcome.CREATED, ApplyOutcome.CREATED]
    steps = applied(plane, documents)
    assert outcomes(steps) == [ApplyOutcome.UNCHANGED, ApplyOutcome.UNCHANGED]
    assert [step.subject for step in steps] == ["Namespace apply-a", "Secret apply-a/s"]


def test_a_dry_run_says_what_it_cannot_check_and_stores_nothing(plane: ControlPlane) -> None:
    documents = [document("Namespace", "apply-b", None), document("ConfigMap", "c", "apply-b", data={"a": "1"})]
    steps = applied(plane, documents, ApplyOptions(is_dry_run=True))
    assert outcomes(steps) == [ApplyOutcome.CREATED, ApplyOutcome.UNCHECKED]
    assert "apply-b does not exist yet" in steps[1].detail
    assert plane.kubectl("get", "namespace", "apply-b", "--ignore-not-found") == ""


def test_a_refusal_is_told_and_the_others_go_on(plane: ControlPlane) -> None:
    documents = [
        document("ConfigMap", "nowhere", "no-such-namespace", data={"a": "1"}),
        document("Deployment", "broken", "default", spec={"replicas": -1}),
        document("ServiceMonitor", "m", "default", spec={}),
        document("ConfigMap", "apply-c", "default", data={"a": "1"}),
    ]
    steps = applied(plane, documents)
    assert outcomes(steps) == [ApplyOutcome.REFUSED, ApplyOutcome.REFUSED, ApplyOutcome.REFUSED, ApplyOutcome.CREATED]
    assert "404" in steps[0].detail
    assert "spec" in steps[1].detail
    assert "does not serve ServiceMonitor" in steps[2].detail
    assert all(step.remedy for step in steps[:3])


def test_a_conflict_names_the_way_out(plane: ControlPlane) -> None:
    plane.kubectl("create", "configmap", "apply-d", "--from-literal=a=theirs", "--field-manager=somebody")
    wanted = [document("ConfigMap", "apply-d", "default", data={"a": "ours"})]
    (step,) = applied(plane, wanted)
    assert step.outcome is ApplyOutcome.REFUSED
    assert "--force-conflicts" in step.remedy
    (forced,) = applied(plane, wanted, ApplyOptions(force=True))
    assert forced.outcome is ApplyOutcome.CHANGED


def test_an_api_that_does_not_answer_ends_it(plane: ControlPlane, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(plane.kubeconfig.read_text().replace(plane.url, "https://127.0.0.1:1"))
    work = apply_documents("hosted", kubeconfig, [document("Namespace", "n", None)], ApplyOptions(), lambda _: None)
    with pytest.raises(ClusterError, match="UMB603"):
        asyncio.run(asyncio.wait_for(work, 60))
