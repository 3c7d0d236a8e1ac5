"""The files of nodes in words: every one that we make is told about, and the lines to type work."""

import posixpath
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.support.hardway_nodes import node_config, nodes

from umbilical.assets.hardway import layout
from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.nodes.kubelet import KUBELET
from umbilical.assets.hardway.nodes.topics import TOPICS
from umbilical.assets.hardway.topic import TopicKind

TOLD_ELSEWHERE = (
    layout.NODE_MANIFESTS,
    layout.NODE_LATE_MANIFESTS,
    layout.NODE_SECRETS,
    layout.MASTER_SECRETS,
    layout.NODE_KUBECONFIGS,
    layout.NODE_CONFIGS,
)
"""Pods, their configs, keys and kubeconfigs: by those who make them."""
FILES = {topic.name: topic for topic in TOPICS if topic.kind is TopicKind.FILE}


@pytest.mark.parametrize("profile", list(Profile), ids=lambda one: one.value)
@pytest.mark.parametrize("node", ["bootstrap", "master-0", "worker-0"])
def test_every_file_and_unit_of_a_node_is_told_about(profile: Profile, node: str) -> None:
    config = node_config(node, profile)
    own = [file.path for file in config.files if posixpath.dirname(file.path) not in TOLD_ELSEWHERE]
    names = [*map(posixpath.basename, own), *(unit.name for unit in config.units)]
    assert [name for name in names if name not in FILES] == []


def test_every_flag_of_the_kubelet_is_told_about() -> None:
    flags = [topic.name for topic in TOPICS if topic.kind is TopicKind.FLAG]
    assert flags == [f"kubelet --{row.name}" for row in KUBELET.flags]


def test_no_two_have_the_same_name_and_none_is_silent() -> None:
    assert len({topic.name for topic in TOPICS}) == len(TOPICS)
    for topic in TOPICS:
        assert all((topic.what, topic.readers, topic.without, topic.by_hand, topic.installer)), topic.name


@pytest.mark.real("jq")
@pytest.mark.parametrize("name", ["hostname", "kubelet.conf", "mcs-machine-config-content.json"])
def test_the_line_to_type_shows_the_file(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "artifacts/ignition"
    folder.mkdir(parents=True)
    (folder / "master-0.ign").write_bytes(nodes(Profile.OPENSHIFT)["ignition/master-0.ign"].content)
    line = FILES[name].by_hand.replace("NODE.ign", "master-0.ign")
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run([bash, "-c", line], cwd=tmp_path, capture_output=True, timeout=30, check=False)
    (file,) = [one for one in node_config("master-0", Profile.OPENSHIFT).files if one.path.endswith(f"/{name}")]
    assert (done.stdout, done.stderr) == (file.content(), b"")
