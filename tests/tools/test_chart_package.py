"""The packaged chart: what is in it, the same bytes whenever it is made, and helm's own package beside it."""

import os
import tarfile
from pathlib import Path
from typing import Final

import pytest
import yaml

import chart
import chart_package
import release
from umbilical import __version__

EPOCH: Final = 1_700_000_000
NAME: Final = f"umbilical-{__version__}.tgz"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    target = tmp_path / chart_package.file_name(__version__)
    chart_package.write(target, EPOCH)
    return target


def test_it_has_the_chart_without_the_values_of_tests_below_a_folder_of_its_name(package: Path) -> None:
    assert package.name == NAME
    names = list(chart_package.read(package))
    assert names[0] == "umbilical/Chart.yaml"
    assert {"umbilical/values.schema.json", "umbilical/templates/tests/ping.yaml", "umbilical/.helmignore"} < set(names)
    assert [name for name in names if "/ci/" in name or not name.startswith("umbilical/")] == []
    release.check_chart(package, __version__)


def test_its_bytes_depend_neither_on_clock_nor_on_modes(package: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.tgz"
    before = os.umask(0o077)
    try:
        chart_package.write(again, EPOCH)
    finally:
        os.umask(before)
    assert again.read_bytes() == package.read_bytes()
    chart_package.write(again, EPOCH + 1)
    assert again.read_bytes() != package.read_bytes()
    with tarfile.open(package) as archive:
        assert {(one.mtime, one.mode, one.uid, one.uname) for one in archive} == {(EPOCH, 0o644, 0, "")}


def test_leftovers_of_editors_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "chart"
    for path in ("Chart.yaml", "templates/a.yaml", "templates/a.yaml~", "ci/values.yaml", "x.orig", ".git/config"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path)
    (folder / ".helmignore").write_bytes((chart.CHART / ".helmignore").read_bytes())
    assert list(chart_package.files(folder)) == ["Chart.yaml", ".helmignore", "templates/a.yaml"]


def test_a_package_of_another_version_or_content_is_refused(package: Path, tmp_path: Path) -> None:
    with pytest.raises(release.ReleaseRefused, match=r"UMB935 .+ is not the chart of version 9\.9\.9\n  why: Chart"):
        release.check_chart(package, "9.9.9")
    other = tmp_path / "other.tgz"
    with tarfile.open(package) as source, tarfile.open(other, "w:gz") as target:
        for member in source:
            if not member.name.endswith("/values.yaml"):
                target.addfile(member, source.extractfile(member))
    with pytest.raises(release.ReleaseRefused, match=r"differ from the tree: umbilical/values\.yaml\n"):
        release.check_chart(other, __version__)


@pytest.mark.soak
@pytest.mark.real("helm")
def test_helm_loads_it_and_its_own_package_has_the_same_files(package: Path, tmp_path: Path) -> None:
    assert f"version: {__version__}" in chart.helm("show", "chart", str(package))
    for values in chart.value_files():
        assert "0 chart(s) failed" in chart.helm("lint", "--strict", str(package), "--values", str(values))
        assert chart.rendered(values, source=package) == chart.rendering_of(values).read_text()
    chart.helm("package", str(chart.CHART), "--destination", str(tmp_path / "helm"))
    ours, theirs = chart_package.read(package), chart_package.read(tmp_path / "helm" / NAME)
    described = "umbilical/Chart.yaml"
    # helm writes the keys of this file in its own order, without comments.
    assert yaml.safe_load(ours.pop(described)) == yaml.safe_load(theirs.pop(described))
    assert ours == theirs
