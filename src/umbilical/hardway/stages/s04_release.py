"""Stage 04: extract the release, and render machine configs with the release's own programs.

The programs need certificates, so this stage already writes the files of stage 05.
"""

import hashlib
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from umbilical.checks.check import Check, Verdict, failed, passed, skipped
from umbilical.fault import HostError, RenderError
from umbilical.hardway.artifacts import layout, machine_config
from umbilical.hardway.artifacts.release import ReleaseCommand, release_commands, upstream_payload
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
"""Three containers whose images are pulled first."""


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
            _render_step(site),
        ]

    def later_steps(self, site: Site) -> Sequence[Step]:
        return [_render_step(site)] if site.cluster.is_openshift and not site.files.get(self.number) else []

    def own_checks(self, site: Site) -> Sequence[Check[Site]]:
        return [artifact_stages.written_check(self.number), _IMAGES, _RENDERED]

    def checks(self, site: Site) -> Sequence[Check[Site]]:
        return [*self.own_checks(site), *lint_checks(site, ("MCO",), ("CFG-05",))]

    def outputs(self, site: Site) -> Mapping[str, str]:
        bases = read_node_bases(site.folder).values()
        rendered = {base.name: hashlib.sha256(base.machine_config).hexdigest() for base in bases}
        return {**artifact_stages.hashes(site, self.number), **rendered}

    def rerenders(self, site: Site) -> bool:
        """The rendered machine configs are the base of the nodes' Ignition configs."""
        return site.cluster.is_openshift


def extracting_steps(site: Site) -> list[Step]:
    """Steps that extract the release image to release/; none if cluster.yaml names a directory."""
    cluster = site.cluster
    if cluster.release.directory or not cluster.release.image:
        return []
    secret = str(site.folder / Path(cluster.access.pull_secret_file).expanduser())
    found = release_commands(cluster.release.image, secret, str(site.folder / RELEASE))
    return [Step(command.title, command.line, _running(site, command), Undo(REMOVE_RELEASE)) for command in found]


def _running(site: Site, command: ReleaseCommand) -> Callable[[], None]:
    def act() -> None:
        make_directory(site.folder / RELEASE)
        printed = processes.run(command.arguments, RENDER_SECONDS)
        if command.output:
            write_public(Path(command.output), printed.encode(), overwrite=True)

    return act


def render_command(site: Site) -> tuple[str, ...]:
    """Return the command that runs the containers; it contains the pull secret's path, not its content."""
    script = f"{ARTIFACTS}/{layout.MACHINE_CONFIG}/{machine_config.SCRIPT}"
    secret = site.folder / Path(site.cluster.access.pull_secret_file).expanduser()
    return ("env", f"REGISTRY_AUTH_FILE={secret}", "bash", str(site.folder / script))


def _render_step(site: Site) -> Step:
    command = render_command(site)
    work = f"{layout.MACHINE_CONFIG}/{machine_config.WORK}"
    return Step(
        "render machine configs with the release's programs",
        shlex.join(command),
        lambda: site.reporter.saw(_render(site, command)),
        # Without podman the directory is a copy that the user brought.
        Undo(REMOVE_FILES, {"paths": [work]}) if _podman(site) else None,
    )


def _render(site: Site, command: Sequence[str]) -> str:
    """Run the containers; without podman keep what another host has rendered."""
    if _podman(site):
        return processes.run(command, RENDER_SECONDS).strip()
    if bases := read_node_bases(site.folder):
        return f"podman is not installed; kept {', '.join(base.name for base in bases.values())}"
    raise HostError("UMB803", "machine configs were not rendered", "podman is not installed", machine_config.RENDER_FIX)


def _podman(site: Site) -> bool:
    return bool(site.machines.survey(site.cluster).programs.get("podman"))


def _check_rendered(site: Site) -> Verdict:
    if not site.cluster.is_openshift:
        return skipped("upstream Kubernetes has no machine configs: nodes use the built-in base")
    try:
        bases = read_node_bases(site.folder)
    except RenderError as error:
        return failed(error.why)
    if bases:
        return passed(", ".join(base.name for base in bases.values()))
    return failed("no machine config is rendered, so nodes use the built-in base")


def _check_images(site: Site) -> Verdict:
    """OpenShift images need a digest; upstream images are those that the config names."""
    release = site.cluster.release
    known = set(upstream_payload(release).images.values())
    wrong = [
        f"{path}: {image}"
        for path, image in images(site)
        if not ("@sha256:" in image if site.cluster.is_openshift else image in known)
    ]
    if not any(images(site)):
        place = release.directory or RELEASE
        return failed(f"no static pod is rendered yet: {place}/ does not contain an extracted release")
    return failed("; ".join(wrong[:5])) if wrong else passed()


def images(site: Site) -> Iterator[tuple[str, str]]:
    """Yield path and image of every container of every static pod."""
    for path in sorted(site.assets):
        if path.startswith((f"{layout.STATIC_PODS}/", f"{layout.LATE_STATIC_PODS}/")) and path.endswith(".yaml"):
            spec: dict[str, Any] = yaml.safe_load(site.content(path)).get("spec", {})
            for container in (*spec.get("initContainers", ()), *spec.get("containers", ())):
                yield path, str(container.get("image", ""))


_IMAGES: Final = Check(
    "REL-01",
    "static pods use only images of this release",
    "a tag can move between two pulls, so that two masters run different programs",
    "set release.image with a digest, or one repository and tag for upstream",
    _check_images,
)
_RENDERED: Final = Check(
    "REL-02",
    "machine configs of masters and workers are rendered and valid",
    "the machine-config daemon compares nodes with them, and marks nodes that differ as degraded",
    machine_config.RENDER_FIX,
    _check_rendered,
)


def _remove_release(site: Site, values: Mapping[str, Any]) -> None:
    """Delete only release/: a directory that the config names belongs to the user."""
    if (site.folder / RELEASE).exists():
        shutil.rmtree(site.folder / RELEASE)


UNDOERS: Final[Mapping[str, Undoer]] = {REMOVE_RELEASE: _remove_release}
STAGE: Final[Stage] = ReleaseStage()
TOPIC: Final = stage_topic(
    4,
    "Reads the images, manifests and CRDs of the release, and runs the release's own programs to render the machine "
    "configs of masters and workers. Upstream Kubernetes has nothing to render.",
    "Static pods use its images, stage 07 its CRDs and feature gates, stage 08 its machine configs.",
    "With a tag instead of a digest the cluster-version operator sees another release than the one that runs; a "
    'FeatureGate without the version stops the controller with "missing desired version".',
    "oc adm release info IMAGE -o json | jq -r .digest; bash artifacts/machine-config/render.sh",
    "bootkube.sh runs the same containers on the bootstrap node, after its certificates exist.",
)
