"""Sites of made-up clusters for tests of stages: rendered for real, on machines that only write down what is asked."""

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

from tests.support import hardway
from tests.support.hardway_workspace import make_directory
from tests.support.made_up_stages import Lines
from tests.support.recording_machines import RecordingMachines

from umbilical.hardway import rendering
from umbilical.hardway.config.cluster import ClusterProfile
from umbilical.hardway.machines.interface import Survey
from umbilical.hardway.site import Site
from umbilical.hardway.stages.s01_prerequisites import PROGRAMS


def make_site(folder: Path, profile: str = "kubernetes") -> Site:
    """A site in an empty folder. What is rendered is the same for every test: keys take long to draw."""
    rendered = _rendered(profile)
    machines = recording_machines(rendered.cluster.profile)
    return replace(rendered, folder=folder, machines=machines, reporter=Lines(), notes={}, reload=None)


def load_site(folder: Path, machines: RecordingMachines | None = None) -> Site:
    """Load a site from its directory, as each run does."""
    rendered = rendering.render(folder, hardway.NOW)
    rendering.keep(folder, rendered)
    return replace(rendered_site(folder, rendered, machines), reload=lambda: load_site(folder))


def rendered_site(folder: Path, rendered: rendering.Rendered, machines: RecordingMachines | None = None) -> Site:
    return Site(
        cluster=rendered.cluster,
        folder=folder,
        assets={asset.path: asset for asset in rendered.made.tree},
        hashes=rendered.hashes,
        has_tunnel=rendered.has_tunnel,
        machines=machines or recording_machines(rendered.cluster.profile),
        reporter=Lines(),
        now=lambda: hardway.NOW,
        kubeconfig=lambda address: folder / "kubeconfig",
        files=rendered.made.files,
    )


def recording_machines(profile: ClusterProfile) -> RecordingMachines:
    """Machines on a host that has every program."""
    machines = RecordingMachines("libvirt" if profile is ClusterProfile.OPENSHIFT else "lab")
    programs = {name: f"/usr/bin/{name}" for name in PROGRAMS[profile]}
    machines.machine_survey = Survey(16, 65536, 500, programs)
    return machines


def with_program(survey: Survey, name: str, path: str) -> Survey:
    return replace(survey, programs={**survey.programs, name: path})


@cache
def _rendered(profile: str) -> Site:
    with tempfile.TemporaryDirectory() as folder:
        return load_site(make_directory(Path(folder) / "c", profile))
