"""The lab's bootkube.sh is bash, speaks the record's protocol, and is one that a patch recognises."""

import subprocess
from pathlib import Path

import pytest

from umbilical.assets.bootkube.anchors import find_anchors
from umbilical.assets.bootkube.release_line import release_line
from umbilical.host.bash import syntax_complaint
from umbilical.lab.bootkube_script import CLUSTER_GATHER, RELEASE_IMAGE, SERVICE_RECORD, VERIFY_URLS, bootkube_script

SCRIPTS = {
    "bootkube": bootkube_script(),
    "record": SERVICE_RECORD,
    "release": RELEASE_IMAGE,
    "gather": CLUSTER_GATHER,
    "urls": VERIFY_URLS,
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_bash_takes_the_scripts(name: str) -> None:
    assert syntax_complaint(SCRIPTS[name].encode()) is None


@pytest.mark.real("shellcheck")
@pytest.mark.parametrize("name", SCRIPTS)
def test_shellcheck_finds_no_error_in_the_scripts(name: str, tmp_path: Path) -> None:
    path = tmp_path / "script.sh"
    path.write_text(SCRIPTS[name])
    command = ["shellcheck", "--severity=error", "--external-sources", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


def test_every_anchor_is_there_once_and_the_release_is_told() -> None:
    assert len(find_anchors(bootkube_script().split("\n"))) == 6
    assert release_line(bootkube_script()) == "4.18"


def test_nothing_is_left_to_be_filled_in() -> None:
    assert "@" not in bootkube_script().replace('"${@}"', "")


def test_every_stage_is_guarded_opened_and_closed() -> None:
    lines = [line.strip() for line in bootkube_script().splitlines()]
    starts = [line for line in lines if line.startswith("record_service_stage_start ")]
    assert len(starts) == len(set(starts)) == 11
    assert lines.count("record_service_stage_success") == 11
