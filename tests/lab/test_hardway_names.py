"""The resolver of the machine network: it answers as the cluster says, follows new zones, and its failure is told."""

from collections.abc import Iterator

import pytest
from tests.support.hardway_lab import PROGRAMS, built, infrastructure, small_cluster

from umbilical.lab.errors import LabError
from umbilical.lab.hardway_names import Question, Resolver, forward_questions, reverse_questions
from umbilical.lab.hardway_topology import HOST
from umbilical.lab.lab import Lab


def zones() -> dict[str, bytes]:
    folder = "infrastructure/dns/"
    files = infrastructure(small_cluster())
    return {path.removeprefix(folder): content for path, content in files.items() if path.startswith(folder)}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    place = tmp_path_factory.mktemp("names") / "lab"
    with built(place, small_cluster()):
        yield Lab.open(place)


def test_what_is_asked_are_the_api_a_route_and_every_node_both_ways() -> None:
    cluster = small_cluster()
    forward = {one.asked: one.right for one in forward_questions(cluster)}
    assert forward["api.ocp4.example.com"] == forward["api-int.ocp4.example.com"] == "192.168.126.10"
    assert forward["console.apps.ocp4.example.com"] == "192.168.126.11"
    assert forward["master-0.ocp4.example.com"] == "192.168.126.101"
    assert Question("192.168.126.100", "bootstrap.ocp4.example.com") in reverse_questions(cluster)


@pytest.mark.root
@pytest.mark.timeout(240)
@pytest.mark.real(*PROGRAMS)
def test_wrong_and_missing_answers_are_told_with_what_is_right(lab: Lab) -> None:
    resolver = Resolver(lab)
    assert resolver.wrong(forward_questions(small_cluster())) == []
    assert resolver.wrong(reverse_questions(small_cluster()), is_reverse=True) == []
    asked = [Question("api.ocp4.example.com", "192.0.2.1"), Question("gone.example.com", "192.0.2.2")]
    assert resolver.wrong(asked) == [
        "api.ocp4.example.com is 192.168.126.10, not 192.0.2.1",
        "gone.example.com is unknown, not 192.0.2.2",
    ]
    assert resolver.wrong([Question("192.168.126.77", "nobody")], is_reverse=True) == [
        "192.168.126.77 is unknown, not nobody"
    ]


@pytest.mark.root
@pytest.mark.timeout(240)
@pytest.mark.real(*PROGRAMS)
def test_new_zones_are_served_and_the_same_ones_change_nothing(lab: Lab) -> None:
    resolver = Resolver(lab)
    before = [one.pid for one in lab.processes() if one.name == "coredns"]
    resolver.serve(zones())
    assert [one.pid for one in lab.processes() if one.name == "coredns"] == before
    files = {name: content.replace(b"192.168.126.10\n", b"192.168.126.9\n") for name, content in zones().items()}
    resolver.serve(files)
    assert resolver.wrong([Question("api.ocp4.example.com", "192.168.126.9")]) == []


@pytest.mark.root
@pytest.mark.timeout(240)
@pytest.mark.real(*PROGRAMS)
def test_a_resolver_that_ends_is_told_with_its_last_words(lab: Lab) -> None:
    with pytest.raises(LabError, match="UMB736 CoreDNS ended") as caught:
        Resolver(lab).serve({"Corefile": b".:53 { nonsense }\n"})
    assert "nonsense" in caught.value.why
    assert HOST in caught.value.remedy
