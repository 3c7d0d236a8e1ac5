"""Stage 02: machines are built from the artifacts, and looked at now."""

from pathlib import Path

from tests.support.hardway_sites import make_site
from tests.support.recording_machines import RecordingMachines

from umbilical.checks.check import Outcome
from umbilical.hardway import judging
from umbilical.hardway.errors import HardwayError
from umbilical.hardway.machines import Probe
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Undo
from umbilical.hardway.stages.s02_infrastructure import STAGE


def _machines(site: Site) -> RecordingMachines:
    assert isinstance(site.machines, RecordingMachines)
    return site.machines


def test_keys_and_files_are_written_before_machines_are_built(tmp_path: Path) -> None:
    site = make_site(tmp_path, "openshift")
    steps = STAGE.steps(site)
    assert steps[0].title.endswith("to artifacts/tls, for the load balancer's checks")
    assert steps[-1].undo == Undo("destroy-machines")
    for step in steps:
        step.act()
    (built,) = _machines(site).calls
    assert built.startswith("build infrastructure/")
    assert "infrastructure/haproxy.bootstrap.cfg" in built
    assert "tls/" not in built


def test_probes_become_checks(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    for step in STAGE.steps(site):
        step.act()
    _machines(site).probes = [Probe("network", True, "up"), Probe("vip", False, "no .10", "ip address replace")]
    found = {one.id: one for one in judging.findings(STAGE, site)}
    assert found["INFRA-network"].outcome is Outcome.PASSED
    assert found["INFRA-vip"].outcome is Outcome.FAILED
    assert (found["INFRA-vip"].evidence, found["INFRA-vip"].fix) == ("no .10", "ip address replace")
    assert found["ART-02"].outcome is Outcome.PASSED
    assert "HA-01" in found


def test_machines_that_cannot_be_looked_at_are_a_finding(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    _machines(site).failing["inspect"] = HardwayError("UMB730", "virsh failed", "no socket", "systemctl start libvirtd")
    found = {one.id: one for one in judging.findings(STAGE, site)}
    assert found["INFRA-inspection"].outcome is Outcome.FAILED
    assert found["INFRA-inspection"].fix == "systemctl start libvirtd"


def test_other_machines_or_artifacts_make_it_stale(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    before = STAGE.inputs(site)
    site.machines = RecordingMachines("libvirt")
    assert STAGE.inputs(site) != before
    site.hashes = {**site.hashes, "infrastructure": "other"}
    assert STAGE.inputs(site)["infrastructure"] == "other"
