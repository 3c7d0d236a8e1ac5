from pathlib import Path

import pytest

from umbilical.lab.errors import LabError
from umbilical.lab.faults import registry
from umbilical.lab.faults.fault import Speaker


def test_every_fault_that_was_promised_is_there_in_its_order() -> None:
    assert registry.names() == [
        "agent-kill",
        "server-kill",
        "agent-freeze",
        "link-cut",
        "port-8091-blocked",
        "packet-loss",
        "certificate-expired",
        "certificate-from-tomorrow",
        "wrong-san",
        "wrong-ca",
        "stale-socket",
        "slow-reader",
        "no-default-route",
    ]


@pytest.mark.parametrize("name", registry.names())
def test_a_fault_says_what_it_is_what_is_seen_and_by_which_code(name: str, repository: Path) -> None:
    fault = registry.find(name)
    assert fault.name == name
    assert len(fault.summary) < 90
    assert fault.seen
    assert f"| {fault.code} |" in (repository / "docs" / "errors.md").read_text()
    assert (fault.ask is not None) == (fault.speaker is Speaker.COMMAND)


def test_no_two_faults_are_recognised_by_the_same_code() -> None:
    codes = [registry.find(name).code for name in registry.names()]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize(("name", "hint"), [("agent-kil", "did you mean agent-kill?"), ("zzz", "there are: agent")])
def test_an_unknown_fault_is_answered_with_the_nearest_or_all(name: str, hint: str) -> None:
    with pytest.raises(LabError) as caught:
        registry.find(name)
    assert caught.value.code == "UMB860"
    assert caught.value.why.startswith(hint)
