"""Stages 01 and 02: what has to be there, and machines that are built from artifacts."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import hardway
from tests.support.hardway_sites import make_site, with_program
from tests.support.recording_machines import RecordingMachines

from umbilical.assets.hardway.cluster import Access
from umbilical.checks.check import Finding, Outcome
from umbilical.hardway import judging
from umbilical.hardway.errors import HardwayError
from umbilical.hardway.machines import Probe, Survey
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Undo
from umbilical.hardway.stages.s01_prerequisites import STAGE, _openssl, is_public_key
from umbilical.hardway.stages.s02_infrastructure import STAGE as INFRASTRUCTURE
from umbilical.host.errors import HostError

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ core@example"  # a public key


@pytest.fixture(scope="module")
def openshift(tmp_path_factory: pytest.TempPathFactory) -> Site:
    site = make_site(tmp_path_factory.mktemp("openshift"), "openshift")
    (site.folder / site.cluster.access.pull_secret_file).write_bytes(hardway.PULL_SECRET)
    site.cluster = replace(site.cluster, access=replace(site.cluster.access, ssh_keys=(KEY,)))
    return site


def _machines(site: Site) -> RecordingMachines:
    assert isinstance(site.machines, RecordingMachines)
    return site.machines


def _found(site: Site, survey: Survey | None = None, **changes: object) -> dict[str, Finding]:
    machines = RecordingMachines("libvirt")
    machines.machine_survey = survey or _machines(site).machine_survey
    # Fields of a cluster by name, each of its own type.
    asked = replace(site, machines=machines, cluster=replace(site.cluster, **changes))  # type: ignore[arg-type]
    return {one.id: one for one in judging.findings(STAGE, asked)}


def test_a_host_that_has_everything_passes_and_nothing_is_done(openshift: Site) -> None:
    found = _found(openshift)
    assert {one.id for one in found.values() if one.outcome is Outcome.FAILED} == set()
    assert "CFG-01" in found
    assert STAGE.steps(openshift) == []


def test_missing_programs_are_named(openshift: Site) -> None:
    survey = with_program(with_program(_machines(openshift).machine_survey, "virsh", ""), "socat", "")
    finding = _found(openshift, survey)["PRE-01"]
    assert (finding.outcome, finding.evidence) == (Outcome.FAILED, "missing: virsh, socat")


def test_a_program_that_nobody_looked_for_is_missing(openshift: Site) -> None:
    assert "oc" in _found(openshift, Survey(16, 65536, 500, {}))["PRE-01"].evidence


@pytest.mark.parametrize(
    ("survey", "outcome", "said"),
    [
        (Survey(4, 65536, 500, {}), Outcome.FAILED, "4 cores, not 8"),
        (Survey(16, 16000, 500, {}), Outcome.FAILED, "16000 MiB of memory, not 32000"),
        (Survey(16, 65536, 10, {}), Outcome.FAILED, "10 GiB free on disk, not 50"),
        (Survey(8, 65536, 500, {}), Outcome.WARNED, "8 cores, not 16"),
        (Survey(16, 65536, 500, {}), Outcome.PASSED, ""),
    ],
)
def test_too_little_room_fails_and_little_room_warns(
    openshift: Site, survey: Survey, outcome: Outcome, said: str
) -> None:
    finding = _found(openshift, survey)["PRE-02"]
    assert (finding.outcome, finding.evidence) == (outcome, said)


@pytest.mark.parametrize(
    ("content", "outcome", "said"),
    [
        (None, Outcome.FAILED, "other.json: No such file or directory"),
        (b"{", Outcome.FAILED, "other.json: not JSON"),
        (b"[]", Outcome.FAILED, "other.json: no JSON object"),
        (b'{"auths": {}}', Outcome.FAILED, "other.json has no entry in .auths"),
        (b'{"auths": {"quay.io": {}}}', Outcome.WARNED, "other.json has no entry for registry.redhat.io"),
        (hardway.PULL_SECRET, Outcome.PASSED, ""),
    ],
)
def test_a_pull_secret_is_judged_without_a_word_of_it(
    openshift: Site, content: bytes | None, outcome: Outcome, said: str
) -> None:
    path = openshift.folder / "other.json"
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_bytes(content)
    finding = _found(openshift, access=Access((KEY,), "other.json"))["PRE-03"]
    assert (finding.outcome, finding.evidence) == (outcome, said)


def test_ssh_keys_are_needed_and_must_be_public_keys(openshift: Site) -> None:
    access = openshift.cluster.access
    assert _found(openshift, access=replace(access, ssh_keys=()))["PRE-04"].outcome is Outcome.FAILED
    finding = _found(openshift, access=replace(access, ssh_keys=(KEY, "ssh-rsa AAAA")))["PRE-04"]
    assert finding.evidence == "no public key: entry 2"


def test_a_lab_needs_neither_pull_secret_nor_ssh_key(tmp_path: Path) -> None:
    found = {one.id: one for one in judging.findings(STAGE, make_site(tmp_path))}
    assert (found["PRE-03"].outcome, found["PRE-04"].outcome) == (Outcome.SKIPPED, Outcome.SKIPPED)


def test_notes_of_the_survey_warn(openshift: Site) -> None:
    survey = replace(_machines(openshift).machine_survey, notes=("libvirt does not answer",))
    assert _found(openshift, survey)["PRE-06"].outcome is Outcome.WARNED


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ("OpenSSL 3.0.19 27 Jan 2026\n", Outcome.PASSED),
        ("OpenSSL 1.1.1w  11 Sep 2023\n", Outcome.PASSED),
        ("OpenSSL 1.0.2k-fips  26 Jan 2017\n", Outcome.FAILED),
        ("BoringSSL\n", Outcome.WARNED),
    ],
)
def test_openssl_must_not_be_too_old(said: str, outcome: Outcome) -> None:
    survey = Survey(1, 1, 1, {"openssl": "/usr/bin/openssl"})
    assert _openssl(survey, lambda command, seconds: said).outcome is outcome


def test_an_openssl_that_does_not_run_or_is_not_there_is_told() -> None:
    def broken(command: object, seconds: float) -> str:
        raise HostError("UMB804", "openssl failed", "no libssl", "ldd")

    assert _openssl(Survey(1, 1, 1, {"openssl": "/x"}), broken).outcome is Outcome.FAILED
    assert _openssl(Survey(1, 1, 1, {"openssl": ""})).outcome is Outcome.SKIPPED


def test_only_what_the_survey_depends_on_makes_it_stale(openshift: Site) -> None:
    other = replace(openshift, cluster=replace(openshift.cluster, name="other"))
    assert STAGE.inputs(other) == STAGE.inputs(openshift)
    other = replace(openshift, cluster=replace(openshift.cluster, access=Access()))
    assert STAGE.inputs(other) != STAGE.inputs(openshift)


def test_a_public_key_is_one_whose_inside_says_the_same_as_its_outside() -> None:
    assert is_public_key(KEY)
    assert not is_public_key(KEY.replace("ssh-ed25519 ", "ssh-rsa "))


@given(st.text(max_size=80) | st.from_regex(r"ssh-[a-z0-9]{1,9} [A-Za-z0-9+/]{0,80}={0,2}", fullmatch=True))
def test_whatever_is_written_there_is_a_key_or_not(line: str) -> None:
    assert is_public_key(line) in (True, False)


def test_keys_and_files_are_written_before_machines_are_built(tmp_path: Path) -> None:
    site = make_site(tmp_path, "openshift")
    steps = INFRASTRUCTURE.steps(site)
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
    for step in INFRASTRUCTURE.steps(site):
        step.act()
    _machines(site).probes = [Probe("network", True, "up"), Probe("vip", False, "no .10", "ip address replace")]
    found = {one.id: one for one in judging.findings(INFRASTRUCTURE, site)}
    assert found["INFRA-network"].outcome is Outcome.PASSED
    assert found["INFRA-vip"].outcome is Outcome.FAILED
    assert (found["INFRA-vip"].evidence, found["INFRA-vip"].fix) == ("no .10", "ip address replace")
    assert found["ART-02"].outcome is Outcome.PASSED
    assert "HA-01" in found


def test_machines_that_cannot_be_looked_at_are_a_finding(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    _machines(site).failing["inspect"] = HardwayError("UMB730", "virsh failed", "no socket", "systemctl start libvirtd")
    found = {one.id: one for one in judging.findings(INFRASTRUCTURE, site)}
    assert found["INFRA-inspection"].outcome is Outcome.FAILED
    assert found["INFRA-inspection"].fix == "systemctl start libvirtd"


def test_other_machines_or_artifacts_make_it_stale(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    before = INFRASTRUCTURE.inputs(site)
    site.machines = RecordingMachines("libvirt")
    assert INFRASTRUCTURE.inputs(site) != before
    site.hashes = {**site.hashes, "infrastructure": "other"}
    assert INFRASTRUCTURE.inputs(site)["infrastructure"] == "other"
