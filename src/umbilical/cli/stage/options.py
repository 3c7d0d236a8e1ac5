"""How every command of `umbilical stage` finds its cluster: the directory, and all that is rendered from it."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from umbilical.hardway.reporting import Reporter
    from umbilical.hardway.site import Site

directory_option = click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    show_default=True,
    help="The cluster's directory: cluster.yaml, artifacts/ and the record.",
)


def utc_now() -> datetime:
    return datetime.now(UTC)


def check_cluster(folder: Path) -> None:
    """Refuse a directory that is no cluster's, before anything is made in it or waited for.

    Raises:
        Fault: UMB700, UMB701.
    """
    from umbilical.hardway.workspace import read_config

    read_config(folder)


def load_site(folder: Path, reporter: "Reporter") -> "Site":
    """Render a cluster's directory for stages. Who holds its lock also keeps what was drawn: keys and a password.

    Raises:
        Fault: its file, its release or its artifacts cannot be used.
    """
    from umbilical.cli.stage.machines import machines_for, trial_for
    from umbilical.hardway import rendering
    from umbilical.hardway.operators import operators_in
    from umbilical.hardway.site import Site
    from umbilical.hardway.workspace_kubeconfigs import kubeconfigs

    # Stages enter other namespaces; a path that is named from here would lead elsewhere there.
    folder = folder.absolute()
    rendered = rendering.render(folder, utc_now())
    if _holds_lock(folder):
        rendering.keep(folder, rendered)
    return Site(
        cluster=rendered.cluster,
        folder=folder,
        assets={asset.path: asset for asset in rendered.made.tree},
        hashes=rendered.hashes,
        has_tunnel=rendered.has_tunnel,
        machines=machines_for(rendered.cluster, folder),
        reporter=reporter,
        now=utc_now,
        kubeconfig=kubeconfigs(folder, rendered.inputs),
        files=rendered.made.files,
        operators=operators_in(rendered.inputs.payload.manifests),
        reload=lambda: load_site(folder, reporter),
        trial=trial_for(rendered.cluster),
    )


def _holds_lock(folder: Path) -> bool:
    from umbilical.hardway.locking import holder

    who = holder(folder)
    return who is not None and who.pid == os.getpid()
