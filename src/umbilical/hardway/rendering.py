"""Render the artifacts of a cluster's directory, and compare them with the files on disk.

Keys, certificates and random values are kept, so the same state gives the same bytes.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from umbilical.hardway import workspace
from umbilical.hardway.artifacts import graph
from umbilical.hardway.artifacts.certificates import names
from umbilical.hardway.artifacts.diff import compare_trees
from umbilical.hardway.artifacts.diff_objects import ArtifactDiff
from umbilical.hardway.artifacts.inputs import Inputs, ReleasePayload
from umbilical.hardway.config.cluster import Cluster
from umbilical.hardway.pki.renewal import CertificateChange, CertificateRenewal, renew
from umbilical.hardway.stages.artifact_stages import is_swept
from umbilical.hardway.workspace import draw_identity, keep_identity, read_identity
from umbilical.manifests.tree import Asset
from umbilical.pki.authority import Authority
from umbilical.pki.profiles import Backend

NO_PAYLOAD: Final = ReleasePayload("", "", {})
NOT_MADE: Final = "not made yet"


@dataclass(frozen=True)
class Rendered:
    inputs: Inputs
    made: graph.Rendering
    on_disk: Mapping[str, Asset]
    renewed: tuple[CertificateChange, ...]
    """New certificates and keys, and why."""
    has_release: bool
    """Without a release only artifacts that need none are rendered."""

    @property
    def cluster(self) -> Cluster:
        return self.inputs.cluster

    @property
    def has_tunnel(self) -> bool:
        return self.inputs.has_tunnel

    @property
    def lacks_machine_configs(self) -> bool:
        """Whether masters and workers get the built-in base although they need the release's."""
        return self.cluster.is_openshift and self.has_release and not self.inputs.bases

    @property
    def hashes(self) -> dict[str, str]:
        """Hashes of all recipes; one that has no release yet makes its stage stale later."""
        return {recipe.id: self.made.hashes.get(recipe.id, NOT_MADE) for recipe in graph.RECIPES}

    @property
    def leftovers(self) -> tuple[str, ...]:
        """Files of an earlier rendering in directories that are read as a whole."""
        return tuple(path for path in self.on_disk if is_swept(path) and path not in self.made.tree)

    def plan(self) -> list[ArtifactDiff]:
        """Return what would be created, changed or removed."""
        gone = set(self.leftovers)
        compared = {path: asset for path, asset in self.on_disk.items() if path in self.made.tree or path in gone}
        return compare_trees(compared, self.made.tree)


def render(
    folder: Path, now: datetime, *, rotate: Collection[str] = (), renew_due: bool = False, backend: Backend = Authority
) -> Rendered:
    """Render what is possible now; write nothing. Raises Fault: an input is missing or invalid."""
    cluster = workspace.read_config(folder).cluster
    on_disk = workspace.read_artifacts(folder)
    payload = workspace.read_payload(folder, cluster)
    renewal = _renewed(cluster, on_disk, now, rotate, renew_due, backend)
    inputs = Inputs(
        cluster,
        renewal.set,
        payload or NO_PAYLOAD,
        read_identity(folder) or draw_identity(cluster.name),
        workspace.read_pull_secret(folder, cluster) if payload is not None else b"",
        workspace.read_node_bases(folder),
    )
    recipes = [one for one in graph.RECIPES if payload is not None or one.id not in graph.NEED_RELEASE]
    return Rendered(inputs, graph.render(inputs, recipes), on_disk, renewal.changes, payload is not None)


def keep(folder: Path, rendered: Rendered) -> None:
    """Save the random inputs of this rendering: keys, certificates, the identity."""
    if read_identity(folder) != rendered.inputs.identity:
        keep_identity(folder, rendered.inputs.identity)
    wanted = [asset for asset in rendered.made.by_recipe["pki"] if rendered.on_disk.get(asset.path) != asset]
    if wanted:
        workspace.write_artifacts(folder, wanted)


def write(folder: Path, rendered: Rendered) -> list[ArtifactDiff]:
    """Write the rendering to the directory, and return what changed."""
    parts = rendered.plan()
    keep(folder, rendered)
    wanted = [asset for asset in rendered.made.tree if rendered.on_disk.get(asset.path) != asset]
    workspace.write_artifacts(folder, wanted, rendered.leftovers)
    return parts


def _renewed(
    cluster: Cluster,
    on_disk: Mapping[str, Asset],
    now: datetime,
    rotate: Collection[str],
    renew_due: bool,
    backend: Backend,
) -> CertificateRenewal:
    existing = workspace.key_pairs(on_disk)
    return renew(names(cluster), existing, cluster.terms, now, backend, rotate, renew_due=renew_due)
