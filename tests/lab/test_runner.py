"""When a pod counts as running, and when as ready."""

import dataclasses

from umbilical.lab.runner import ContainerStatus, PodStatus

UP = ContainerStatus("agent", "localhost/umbilical:lab", pid=7, restarts=0, is_ready=True)
POD = PodStatus("kube-system", "konnectivity-agent-x", "master-0", "10.92.1.2", (UP,))


def test_a_pod_whose_containers_all_run_and_are_ready_is_ready() -> None:
    assert POD.is_running
    assert POD.is_ready


def test_a_pod_with_a_container_that_is_not_ready_runs_and_is_not_ready() -> None:
    waiting = dataclasses.replace(UP, is_ready=False)
    pod = dataclasses.replace(POD, containers=(UP, waiting))
    assert pod.is_running
    assert not pod.is_ready


def test_a_pod_with_a_dead_container_does_not_run() -> None:
    dead = dataclasses.replace(UP, pid=None, last_exit=-9)
    assert not dataclasses.replace(POD, containers=(UP, dead)).is_running


def test_a_pod_without_containers_is_neither() -> None:
    assert not dataclasses.replace(POD, containers=()).is_ready
