"""Writes docs/hardway/ (a page for each stage), docs/errors.md and docs/flags.md from texts in the code.

`python tools/hardway_docs.py` writes them; a test checks that they are up to date.
"""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import flag_docs
from hardway_pages import Book
from umbilical import codes
from umbilical.cli.stage.cluster import machines_for, smoke_test_for
from umbilical.cli.stage.view import StageLines
from umbilical.hardway.artifacts.static_pods.pods import REMOVALS_PATH as REMOVALS
from umbilical.hardway.artifacts.static_pods.pods import write_removals
from umbilical.hardway.config.cluster import ClusterProfile, MachinesKind
from umbilical.hardway.config.example import ExampleOptions, example
from umbilical.hardway.config.reading import read_cluster
from umbilical.hardway.site import Site
from umbilical.hardway.stages import catalogue
from umbilical.manifests.tree import Asset

REPOSITORY: Final = Path(__file__).resolve().parent.parent
PAGES: Final = Path("docs", "hardway")
CODES: Final = Path("docs", "errors.md")
WISHES: Final = (
    ExampleOptions(ClusterProfile.KUBERNETES, MachinesKind.LAB, 1, 1),
    ExampleOptions(ClusterProfile.OPENSHIFT, MachinesKind.LIBVIRT, 1, 1),
)


def paper_site(wish: ExampleOptions) -> Site:
    """A site of the example cluster to list steps and checks; none of them is run."""
    cluster = read_cluster(example(wish)).cluster
    folder = Path()
    return Site(
        cluster=cluster,
        folder=folder,
        assets={REMOVALS: Asset(REMOVALS, write_removals([]), 0o644)},
        hashes={},
        has_tunnel=True,
        machines=machines_for(cluster, folder),
        reporter=StageLines({}),
        now=lambda: datetime.now(UTC),
        kubeconfig=lambda address: folder,
        smoke_test=smoke_test_for(cluster),
    )


def made(repository: Path = REPOSITORY) -> dict[Path, str]:
    """Render all pages, by path in the repository."""
    book = Book(catalogue.stages(), {wish.profile.value: paper_site(wish) for wish in WISHES})
    pages = {PAGES / name: text for name, text in book.files().items()}
    return {**pages, CODES: codes.table(), flag_docs.PAGE: flag_docs.page()}


def main() -> int:
    for path, text in made().items():
        place = REPOSITORY / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists() or place.read_text() != text:
            place.write_text(text)
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
