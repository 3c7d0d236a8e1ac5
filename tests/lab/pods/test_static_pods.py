"""Static pods out of files: the kubelet's rules."""

import asyncio
import os
from pathlib import Path

import pytest
import yaml
from tests.support.manifests import MINIMAL, changed

from umbilical.lab.pods.spec import Kind
from umbilical.lab.pods.static_pods import NoSources, StaticPods, read_folder

FILE = yaml.safe_dump(MINIMAL).encode()
OTHER = yaml.safe_dump(changed(MINIMAL, "spec", hostNetwork=True)).encode()


def test_a_file_is_a_pod_that_bears_the_nodes_name() -> None:
    (pod,) = StaticPods("node-1").read({"a.yaml": FILE}).values()
    assert pod.title == "default/sample-node-1"
    assert pod.uid


def test_the_same_file_is_the_same_pod_and_another_content_is_another() -> None:
    pods = StaticPods("node-1")
    first = pods.read({"a.yaml": FILE})
    assert pods.read({"a.yaml": FILE}) == first
    assert set(pods.read({"a.yaml": OTHER})).isdisjoint(first)


def test_a_file_that_is_gone_is_no_pod() -> None:
    pods = StaticPods("node-1")
    pods.read({"a.yaml": FILE})
    assert pods.read({}) == {}


def test_a_file_that_is_being_written_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    pods = StaticPods("node-1")
    first = pods.read({"a.yaml": FILE})
    assert pods.read({"a.yaml": FILE[:20]}) == first
    assert pods.read({"a.yaml": FILE[:20]}) == first
    assert len(caplog.records) == 1
    assert "UMB830" in caplog.text or "UMB831" in caplog.text


def test_one_bad_file_does_not_hurt_the_others() -> None:
    assert len(StaticPods("node-1").read({"a.yaml": b"nonsense", "b.yaml": FILE})) == 1


def test_of_two_files_with_one_pod_the_first_counts() -> None:
    pods = StaticPods("node-1").read({"b.yaml": OTHER, "a.yaml": FILE})
    assert [pod.uses_node_network for pod in pods.values()] == [False]


def test_hidden_files_and_folders_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(FILE)
    (tmp_path / ".hidden.yaml").write_bytes(FILE)
    (tmp_path / "folder").mkdir()
    os.symlink("/nowhere", tmp_path / "broken")
    assert read_folder(tmp_path) == {"a.yaml": FILE}


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert read_folder(tmp_path / "missing") == {}


async def _ask_nobody() -> tuple[object, object]:
    (pod,) = StaticPods("n").read({"a": FILE}).values()
    nobody = NoSources()
    return await nobody.values(Kind.SECRET, "a", "b"), await nobody.token(pod, "", 600)


def test_static_pods_get_nothing_of_the_apis() -> None:
    assert asyncio.run(_ask_nobody()) == (None, None)
