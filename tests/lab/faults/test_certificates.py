from datetime import UTC, datetime, timedelta

import pytest
import yaml
from tests.support.fault_scene import MemoryScene

from umbilical.assets.names import OWN, STATIC_POD
from umbilical.lab.faults import registry
from umbilical.lab.faults.certificates import restart_server
from umbilical.pki.certificate import Certificate, read_certificates

SERVER = f"{OWN.pki_directory}/server/tls.crt"


def broken(scene: MemoryScene, name: str) -> Certificate:
    registry.find(name).break_(scene)
    (certificate,) = read_certificates(scene.memory.files[SERVER])
    return certificate


def test_the_expired_one_ended_hours_ago_under_an_authority_that_is_valid() -> None:
    certificate = broken(MemoryScene().lay(), "certificate-expired")
    assert timedelta(hours=1) < datetime.now(UTC) - certificate.not_after < timedelta(hours=3)


def test_the_one_of_tomorrow_is_valid_in_nearly_a_day() -> None:
    certificate = broken(MemoryScene().lay(), "certificate-from-tomorrow")
    assert timedelta(hours=22) < certificate.not_before - datetime.now(UTC) < timedelta(hours=24)


def test_the_one_with_the_wrong_name_is_for_an_address_that_nobody_has() -> None:
    certificate = broken(MemoryScene().lay(), "wrong-san")
    assert [str(address) for address in certificate.ip_addresses] == ["192.0.2.10"]


def test_the_one_from_another_authority_has_the_same_names_and_another_signer() -> None:
    scene = MemoryScene().lay()
    (right,) = read_certificates(scene.memory.files[SERVER])
    wrong = broken(scene, "wrong-ca")
    assert (wrong.subject, wrong.ip_addresses) == (right.subject, right.ip_addresses)
    assert wrong.issuer == right.issuer
    assert wrong.authority_identifier != right.authority_identifier


@pytest.mark.parametrize("name", ["certificate-expired", "certificate-from-tomorrow", "wrong-san", "wrong-ca"])
def test_the_manifest_is_written_last_and_everything_comes_back(name: str) -> None:
    scene = MemoryScene().lay()
    before, pid = dict(scene.memory.files), scene.scripted.server_pid
    fault = registry.find(name)
    memory = fault.break_(scene)
    assert scene.memory.did[-1] == f"write bootstrap:{STATIC_POD}"
    assert scene.scripted.server_pid != pid
    assert memory == {}, "no key may get into the state file"
    fault.mend(scene, memory)
    assert scene.memory.files == before
    pid = scene.scripted.server_pid
    fault.mend(scene, memory)
    assert scene.memory.files == before, "twice is fine"


def test_a_restart_is_a_change_that_a_kubelet_sees() -> None:
    scene = MemoryScene().lay()
    before, pid = yaml.safe_load(scene.memory.files[STATIC_POD]), scene.scripted.server_pid
    restart_server(scene)
    after = yaml.safe_load(scene.memory.files[STATIC_POD])
    assert after["metadata"]["annotations"].pop("umbilical.dev/restarted")
    assert after == before
    assert scene.scripted.server_pid != pid
