"""Stage 04: what the release holds, and machine configs rendered by the release's own programs.

They need certificates, so the files of stage 05 are written here already.
"""

import hashlib
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from umbilical.checks.check import Check, Verdict, failed, passed, skipped, warned
from umbilical.fault import RenderError
from umbilical.hardway.artifacts import layout, machine_config
from umbilical.hardway.artifacts.release import Command, release_commands
from umbilical.hardway.explain.entry import stage_topic
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Stage, Step, Undo
from umbilical.hardway.stages import artifact_stages
from umbilical.hardway.stages.artifact_stages import lint_checks
from umbilical.hardway.undoing import ARTIFACTS, REMOVE_FILES, REMOVE_RELEASE, Undoer
from umbilical.hardway.workspace import RELEASE, read_node_bases
from umbilical.host import processes
from umbilical.host.files import make_directory, write_public

PKI_STAGE: Final = 5
RENDER_SECONDS: Final = 1800.0
"""Three containers whose images have to be pulled first."""


class ReleaseStage:
    number = 4
    name = "release"
    title = "read the release and render machine configs"
    needs: tuple[int, ...] = ()

    def inputs(self, site: Site) -> Mapping[str, str]:
        release = hashlib.sha256(repr(site.cluster.release).encode()).hexdigest()
        return {"release": release}

    def steps(self, site: Site) -> Sequence[Step]:
        if not site.cluster.is_openshift:
            return []
        if not site.files.get(self.number):
            return extracting_steps(site)
        return [
            *artifact_stages.writing_steps(site, PKI_STAGE, "which the render commands read"),
            *artifact_stages.writing_steps(site, self.number),
            *([_render_step(site)] if _podman(site) else []),
        ]

    def checks(self, site: Site) -> Sequence[Check[Site]]:
        return [
            artifact_stages.written_check(self.number),
            _IMAGES,
            _RENDERED,
            *lint_checks(site, ("MCO",), ("CFG-05",)),
        ]

    def outputs(self, site: Site) -> Mapping[str, str]:
        bases = read_node_bases(site.folder).values()
        rendered = {base.name: hashlib.sha256(base.machine_config).hexdigest() for base in bases}
        return {**artifact_stages.hashes(site, self.number), **rendered}

    def rerenders(self, site: Site) -> bool:
        """What the containers render is the base of the nodes' Ignition."""
        return site.cluster.is_openshift


def extracting_steps(site: Site) -> list[Step]:
    """What fills release/ with an image's files; a directory that the config names is filled by its owner."""
    cluster = site.cluster
    if cluster.release.directory or not cluster.release.image:
        return []
    secret = str(site.folder / Path(cluster.access.pull_secret_file).expanduser())
    found = release_commands(cluster.release.image, secret, str(site.folder / RELEASE))
    return [Step(command.title, command.line, _running(site, command), Undo(REMOVE_RELEASE)) for command in found]


def _running(site: Site, command: Command) -> Callable[[], None]:
    def act() -> None:
        make_directory(site.folder / RELEASE)
        printed = processes.run(command.arguments, RENDER_SECONDS)
        if command.output:
            write_public(Path(command.output), printed.encode(), overwrite=True)

    return act


def render_command(site: Site) -> tuple[str, ...]:
    """Return the line that runs the containers; the pull secret goes by its name, never by its content."""
    script = f"{ARTIFACTS}/{layout.MACHINE_CONFIG}/{machine_config.SCRIPT}"
    secret = site.folder / Path(site.cluster.access.pull_secret_file).expanduser()
    return ("env", f"REGISTRY_AUTH_FILE={secret}", "bash", str(site.folder / script))


def _render_step(site: Site) -> Step:
    command = render_command(site)
    work = f"{layout.MACHINE_CONFIG}/{machine_config.WORK}"
    return Step(
        "render machine configs with the release's programs",
        shlex.join(command),
        lambda: site.reporter.saw(processes.run(command, RENDER_SECONDS).strip()),
        Undo(REMOVE_FILES, {"paths": [work]}),
    )


def _podman(site: Site) -> bool:
    return bool(site.machines.survey(site.cluster).programs.get("podman"))


def _judge_rendered(site: Site) -> Verdict:
    if not site.cluster.is_openshift:
        return skipped("upstream has no machine configs: nodes have a base of our own")
    try:
        bases = read_node_bases(site.folder)
    except RenderError as error:
        return failed(error.why)
    if bases:
        return passed(", ".join(base.name for base in bases.values()))
    missing = "there is none, so nodes have our own small base"
    return failed(missing) if _podman(site) else warned(f"{missing}: there is no podman here")


def _judge_images(site: Site) -> Verdict:
    """OpenShift's by digest; upstream's from the one repository and with the one tag that the config names."""
    release = site.cluster.release
    wrong = [
        f"{path}: {image}"
        for path, image in images(site)
        if not (
            "@sha256:" in image
            if site.cluster.is_openshift
            else image.startswith(f"{release.repository}/") and image.endswith(f":{release.tag}")
        )
    ]
    if not any(images(site)):
        place = release.directory or RELEASE
        return failed(f"no static pod is rendered yet: {place}/ holds no extracted release")
    return failed("; ".join(wrong[:5])) if wrong else passed()


def images(site: Site) -> Iterator[tuple[str, str]]:
    """Name every image of every static pod."""
    for path in sorted(site.assets):
        if path.startswith((f"{layout.STATIC_PODS}/", f"{layout.LATE_STATIC_PODS}/")) and path.endswith(".yaml"):
            spec: dict[str, Any] = yaml.safe_load(site.content(path)).get("spec", {})
            for container in (*spec.get("initContainers", ()), *spec.get("containers", ())):
                yield path, str(container.get("image", ""))


_IMAGES: Final = Check(
    "REL-01",
    "static pods name images of this release and of no other",
    "a tag may move between two pulls, and two masters then run different programs",
    "name the release by digest (release.image), or one repository and tag for upstream's programs",
    _judge_images,
)
_RENDERED: Final = Check(
    "REL-02",
    "machine configs of masters and workers are rendered and can be read",
    "the machine-config daemon compares nodes with them, and finds all that was built otherwise degraded",
    f"bash {ARTIFACTS}/{layout.MACHINE_CONFIG}/{machine_config.SCRIPT}, where podman and the pull secret are",
    _judge_rendered,
)


def _remove_release(site: Site, values: Mapping[str, Any]) -> None:
    """Only the place of our own: a directory that the config names is the user's."""
    if (site.folder / RELEASE).exists():
        shutil.rmtree(site.folder / RELEASE)


UNDOERS: Final[Mapping[str, Undoer]] = {REMOVE_RELEASE: _remove_release}
STAGE: Final[Stage] = ReleaseStage()
TOPIC: Final = stage_topic(
    4,
    "Reads which images, manifests and CRDs the release holds, and runs the release's own programs to render the "
    "machine configs of masters and workers. With upstream's programs there is nothing to render.",
    "Static pods name its images, stage 07 takes its CRDs and feature gates, stage 08 merges onto its machine configs.",
    "A tag in place of a digest makes the version operator see another release than the one it runs; a FeatureGate "
    'without the version stops the controller with "missing desired version".',
    "oc adm release info IMAGE -o json | jq -r .digest; bash artifacts/machine-config/render.sh",
    "bootkube.sh runs the same containers on the bootstrap node, after its certificates are there.",
)
