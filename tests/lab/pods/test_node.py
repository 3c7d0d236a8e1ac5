"""Where files of pods lie on a node."""

from pathlib import Path

from umbilical.lab.pods.node import Folders, Node
from umbilical.lab.pods.spec import Container, Pod

POD = Pod("p", "ns", "u", (Container("a", "i"),))


def test_logs_lie_where_a_kubelet_puts_them() -> None:
    assert Folders().pod_logs(POD) == Path("/var/log/pods/ns_p_u")


def test_secrets_and_the_report_lie_apart() -> None:
    folders = Folders()
    assert folders.secrets not in folders.status_file.parents
    assert folders.status_file == Path("/run/podrunner/status.json")
    assert folders.pod_files(POD).parent == Path("/var/lib/podrunner/pods")


def test_containers_of_two_nodes_bear_different_marks() -> None:
    nodes = [Node("a", ("10.91.0.11",), {}), Node("b", ("10.91.0.12",), {})]
    elsewhere = Node("a", ("10.91.0.11",), {}, folders=Folders(run=Path("/elsewhere")))
    marks = {node.owner for node in (*nodes, elsewhere)}
    assert len(marks) == 3
    assert all(mark.replace("-", "").isalnum() for mark in marks)


def test_the_first_address_is_the_main_one() -> None:
    assert Node("n", ("10.91.0.11", "fd91::11"), {}).address == "10.91.0.11"
