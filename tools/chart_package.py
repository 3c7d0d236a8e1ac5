"""Packs the chart as `helm package` does, without helm: the same bytes for the same commit, checked by reading it back.

It differs from helm's in two ways: Chart.yaml is the file as it is, and times are those of the commit.
"""

import gzip
import io
import tarfile
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Final

import yaml

import chart
import peers

IGNORED: Final = ".helmignore"
MODE: Final = 0o644


def file_name(version: str) -> str:
    return f"{chart.CHART.name}-{version}.tgz"


def files(root: Path = chart.CHART) -> dict[str, bytes]:
    """Return what a package of the chart has, by its path in the chart; Chart.yaml is first, as helm writes it."""
    patterns = [line for line in (root / IGNORED).read_text().splitlines() if line and not line.startswith("#")]
    paths = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    kept = [path for path in paths if not _is_ignored(path, patterns)]
    return {path: (root / path).read_bytes() for path in sorted(kept, key=lambda path: path != "Chart.yaml")}


def _is_ignored(path: str, patterns: list[str]) -> bool:
    """Whether a pattern has the file's name or, with a slash at its end, the name of a folder above it."""
    place = PurePosixPath(path)
    folders = [folder.name for folder in place.parents]
    return any(
        fnmatchcase(name, pattern.removesuffix("/"))
        for pattern in patterns
        for name in (folders if pattern.endswith("/") else [place.name, *folders])
    )


def write(target: Path, epoch: int) -> None:
    """Write the package; every file has this time and mode, whatever the tree has."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, content in files().items():
            member = tarfile.TarInfo(f"{chart.CHART.name}/{path}")
            member.size, member.mode, member.mtime = len(content), MODE, epoch
            archive.addfile(member, io.BytesIO(content))
    target.write_bytes(gzip.compress(packed.getvalue(), mtime=epoch))


def read(package: Path) -> dict[str, bytes]:
    """Return the files of a package, by their path in it."""
    with tarfile.open(package) as archive:
        return {member.name: (archive.extractfile(member) or io.BytesIO()).read() for member in archive}


def check(package: Path, version: str) -> str:
    """Read a package back and return what is wrong with it; with helm in the cache, helm loads it, too.

    Raises ChartError: helm refused it.
    """
    found = read(package)
    wanted = {f"{chart.CHART.name}/{path}": content for path, content in files().items()}
    if found != wanted:
        differing = sorted(path for path in found.keys() | wanted.keys() if found.get(path) != wanted.get(path))
        return f"files that differ from the tree: {', '.join(differing)}"
    described = yaml.safe_load(found[f"{chart.CHART.name}/Chart.yaml"])
    if (described["version"], described["appVersion"]) != (version, version):
        return f"Chart.yaml is of version {described['version']} for {described['appVersion']}"
    if peers.binary("helm") is not None:
        stale = [values.name for values in chart.value_files() if not is_rendered_as_committed(package, values)]
        return f"it renders something else with {', '.join(stale)}" if stale else ""
    return ""


def is_rendered_as_committed(package: Path, values: Path) -> bool:
    chart.helm("lint", "--strict", str(package), "--values", str(values))
    return chart.rendered(values, source=package) == chart.rendering_of(values).read_text()
