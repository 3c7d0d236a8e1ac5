"""What is known of a pod before anything of it runs."""

from umbilical.lab.pods.records import CREATING, INITIALIZING, Ended, Idle, record_of
from umbilical.lab.pods.spec import Container, Pod


def test_a_pod_begins_with_all_its_containers_waiting() -> None:
    record = record_of(Pod("p", "ns", "u", (Container("a", "i"), Container("b", "j"))), "10.91.0.10", 5.0)
    assert [(each.name, each.image, each.state) for each in record.containers] == [
        ("a", "i", Idle(CREATING)),
        ("b", "j", Idle(CREATING)),
    ]
    assert not record.is_ready


def test_containers_wait_for_those_that_come_before_them() -> None:
    record = record_of(Pod("p", "ns", "u", (Container("a", "i"),), (Container("init", "i"),)), "10.91.0.10", 5.0)
    assert record.containers[0].state == Idle(INITIALIZING)
    assert record.init_containers[0].state == Idle(CREATING)


def test_a_pod_is_ready_when_all_its_containers_are() -> None:
    record = record_of(Pod("p", "ns", "u", (Container("a", "i"), Container("b", "j"))), "10.91.0.10", 5.0)
    record.is_initialized = True
    record.containers[0].is_ready = True
    assert not record.is_ready
    record.containers[1].is_ready = True
    assert record.is_ready


def test_an_end_is_well_or_not() -> None:
    assert Ended(0, 1.0, 2.0).reason == "Completed"
    assert Ended(-9, 1.0, 2.0).reason == "Error"
