"""Everything the doctor looks at, together."""

from pathlib import Path

from tests.support.hardway_patients import examined, make_patient
from tests.support.live_site import live_site
from tests.support.recording_machines import RecordingMachines

from umbilical.hardway.doctor.examination import signatures
from umbilical.hardway.machines import BackendServer
from umbilical.hardway.stages import catalogue


def test_what_stages_know_of_failures_is_collected_once(tmp_path: Path) -> None:
    known = signatures(live_site(tmp_path), catalogue.stages())
    hints = [one.hint for one in known]
    assert len(hints) == len(set(hints))
    assert any("crictl ps -a" in hint for hint in hints)
    assert any("check-ssl" in hint for hint in hints)


def test_files_come_before_machines_which_are_looked_at_only_if_there_are_any(tmp_path: Path) -> None:
    folder = make_patient(tmp_path / "c", "kubernetes")
    (folder / "artifacts" / "tls" / "etcd-signer.key").chmod(0o644)
    machines = RecordingMachines()
    assert [one.id for one in examined(folder, machines)] == ["PKI-08"]
    machines.servers = [BackendServer("api", "bootstrap.ocp4.example.com", False, "L7RSP")]
    assert [one.id for one in examined(folder, machines)] == ["PKI-08", "balancer"]
