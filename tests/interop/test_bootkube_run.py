"""The patched script is run: real bash, openssl, jq and ip, killed at every stage and started again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.support.bootkube_node import AT_CREATION, BootkubeNode
from tests.support.bootkube_outcome import assert_finished, our_objects
from tests.support.bootstrap_corpus import Case
from tests.support.netns import Namespace, Network
from tests.support.scratch_node import ScratchNode

from umbilical.bootstrap.names import STAGES, STATIC_POD
from umbilical.bootstrap.patch.patch import patch, undo
from umbilical.bootstrap.spec import Shape, TunnelSpec, for_shape
from umbilical.ignition.document import IgnitionDocument

pytestmark = [pytest.mark.real("openssl", "jq", "ip"), pytest.mark.root, pytest.mark.timeout(600)]

IPV4: Final = "10.0.0.5"
IPV6: Final = "fd2e:6f44:5dd8::5"
KILLED: Final = -9
OPENSHIFT: Final = for_shape(Shape.OPENSHIFT)


@pytest.fixture(scope="module")
def bootstrap_host() -> Iterator[Namespace]:
    """A namespace with an address in the machine network of either family, and no way out of it."""
    with Network("umb-bootkube") as network:
        host, neighbour = network.create("host"), network.create("neighbour")
        network.link(host, f"{IPV4}/16", neighbour, "10.0.0.1/16")
        network.link(host, f"{IPV6}/64", neighbour, "fd2e:6f44:5dd8::1/64")
        network.route(host, "default", "10.0.0.1")
        yield host


def _node(folder: Path, namespace: Namespace, case: Case, spec: TunnelSpec = OPENSHIFT) -> BootkubeNode:
    patched = patch(IgnitionDocument(case.content()), spec).document.content
    return BootkubeNode(ScratchNode(folder, namespace), patched)


@pytest.mark.parametrize(
    "case",
    [
        Case("4.12"),
        Case("4.15"),
        Case("4.22"),
        Case("5.1", native="off"),
        Case("4.19", gzip=True),
    ],
    ids=str,
)
def test_a_patched_script_runs_to_its_end(case: Case, tmp_path: Path, bootstrap_host: Namespace) -> None:
    node = _node(tmp_path / "node", bootstrap_host, case)
    ended = node.run()
    assert ended.exit_code == 0, ended.stderr
    assert_finished(node, IPV4)
    assert [stage for stage in node.stages() if stage in STAGES] == list(STAGES)
    assert node.stages()[-1] == STAGES[-1]


def test_a_patched_script_runs_where_ipv6_comes_first(tmp_path: Path, bootstrap_host: Namespace) -> None:
    node = _node(tmp_path / "node", bootstrap_host, Case("4.18", ipv6=True))
    ended = node.run()
    assert ended.exit_code == 0, ended.stderr
    assert_finished(node, IPV6)


def test_the_planned_shape_runs_too(tmp_path: Path, bootstrap_host: Namespace) -> None:
    node = _node(tmp_path / "node", bootstrap_host, Case("4.18"), for_shape(Shape.SEED))
    ended = node.run()
    assert ended.exit_code == 0, ended.stderr
    assert_finished(node, IPV4)


def test_an_undone_script_runs_as_if_nothing_had_been(tmp_path: Path, bootstrap_host: Namespace) -> None:
    undone = undo(patch(IgnitionDocument(Case("4.20").content()), OPENSHIFT).document)
    node = BootkubeNode(ScratchNode(tmp_path / "node", bootstrap_host), undone.content)
    ended = node.run()
    assert ended.exit_code == 0, ended.stderr
    assert node.node.read("/etc/kubernetes/bootstrap-configs/kube-apiserver-config.yaml") == ""
    assert [call for call in node.node.calls() if "delete" in call or "network-proxy" in call] == []
    assert set(node.stages()).isdisjoint(STAGES)


def test_the_built_in_tunnel_of_the_corpus_runs_through_the_same_stages(
    tmp_path: Path, bootstrap_host: Namespace
) -> None:
    node = BootkubeNode(ScratchNode(tmp_path / "node", bootstrap_host), Case("5.1", native="on").content())
    ended = node.run()
    assert ended.exit_code == 0, ended.stderr
    assert [stage for stage in node.stages() if stage in STAGES] == list(STAGES)
    assert our_objects(node, f"{AT_CREATION}/manifests")["konnectivity-agent-daemonset"]["kind"] == "DaemonSet"


def _installers_stages(case: Case, tmp_path: Path, namespace: Namespace) -> list[str]:
    node = _node(tmp_path / "before", namespace, case)
    assert node.run().exit_code == 0
    return node.stages()


@pytest.mark.parametrize("release", [pytest.param("4.13", marks=pytest.mark.soak), "4.23"])
def test_it_may_be_killed_in_every_stage_of_the_script(release: str, tmp_path: Path, bootstrap_host: Namespace) -> None:
    case = Case(release)
    stages = _installers_stages(case, tmp_path, bootstrap_host)
    node = _node(tmp_path / "node", bootstrap_host, case)
    for stage in stages:
        # Right after its beginning, and so that the one before it is over.
        assert node.run_killed_in(stage, 12).exit_code == KILLED, stage
    ended = node.run()
    assert ended.exit_code == 0, ended.stderr
    assert_finished(node, IPV4)


@pytest.mark.parametrize("lines", [pytest.param(1, marks=pytest.mark.soak), 4])
def test_it_may_be_killed_every_few_lines_of_our_stages(lines: int, tmp_path: Path, bootstrap_host: Namespace) -> None:
    node = _node(tmp_path / "node", bootstrap_host, Case("4.18"))
    for stage in STAGES:
        offset = 0
        while not node.is_done(stage):
            offset += lines
            assert node.run_killed_in(stage, offset).exit_code == KILLED, (stage, offset)
        assert offset > 5
    ended = node.run()
    assert ended.exit_code == 0, ended.stderr
    assert_finished(node, IPV4)


def test_a_failure_is_on_the_record_with_its_stage_and_the_next_try_goes_on(
    tmp_path: Path, bootstrap_host: Namespace
) -> None:
    node = _node(tmp_path / "node", bootstrap_host, Case("4.18"))
    real = node.node.read("/usr/local/bin/podman")
    broken = real.replace('*" image "*)', '*" image apiserver-network-proxy"*) exit 7 ;;\n    *" image "*)')
    node.node.write("/usr/local/bin/podman", broken, 0o555)
    assert node.run().exit_code != 0
    assert node.stages("failure") == ["konnectivity-server-bootstrap"]
    assert not node.has(STATIC_POD)
    node.node.write("/usr/local/bin/podman", real, 0o555)
    assert node.run().exit_code == 0
    assert_finished(node, IPV4)


def test_a_cluster_that_refuses_the_deletion_does_not_hold_the_installation_up(
    tmp_path: Path, bootstrap_host: Namespace
) -> None:
    node = _node(tmp_path / "node", bootstrap_host, Case("4.18"))
    oc = node.node.read("/usr/local/bin/oc").replace('*" release', '"delete "*) exit 1 ;;\n    *" release')
    node.node.write("/usr/local/bin/oc", oc, 0o555)
    ended = node.run()
    assert ended.exit_code == 0, ended.stderr
    assert node.has("/opt/openshift/.bootkube.done")
    assert node.stages("failure") == ["konnectivity-cleanup"]
    assert "umbilical bootstrap teardown" in ended.stderr
