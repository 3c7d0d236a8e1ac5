"""Cluster directories for the doctor: all artifacts are written, machines only record commands."""

from pathlib import Path

from tests.support import hardway
from tests.support.hardway_sites import rendered_site
from tests.support.hardway_workspace import make_directory, write_machine_configs
from tests.support.recording_machines import RecordingMachines

from umbilical.hardway import rendering, workspace
from umbilical.hardway.diagnosis import Diagnosis
from umbilical.hardway.doctor import examine
from umbilical.hardway.ledger import read_record
from umbilical.hardway.site import Site
from umbilical.hardway.stages import catalogue


def make_cluster_directory(folder: Path, profile: str) -> Path:
    """A directory as after stage 08, with all options on."""
    made = make_directory(folder, profile, kubeProxy="on", konnectivity="on")
    if profile == "openshift":
        write_machine_configs(made)
    rendering.write(made, rendering.render(made, hardway.NOW))
    return made


def site_of(folder: Path, machines: RecordingMachines | None = None) -> Site:
    """The site without the lock: nothing is saved to disk."""
    return rendered_site(folder, rendering.render(folder, hardway.NOW), machines)


def examined(folder: Path, machines: RecordingMachines | None = None) -> list[Diagnosis]:
    site = site_of(folder, machines)
    return examine(site, read_record(folder), workspace.read_artifacts(folder), catalogue.stages(), is_locked=False)
