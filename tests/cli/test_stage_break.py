"""`umbilical stage break` as a user runs it."""

import shutil
from pathlib import Path

import pytest
from tests.support.hardway_workspace import contents, make_directory

from umbilical.cli import main
from umbilical.cli.stage_options import utc_now
from umbilical.hardway import rendering

Printed = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_directory(tmp_path_factory.mktemp("break") / "c")
    rendering.write(folder, rendering.render(folder, utc_now()))
    return folder


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "c")


def stage(folder: Path, command: str, *arguments: str) -> int:
    return main.run(["stage", command, "--dir", str(folder), *arguments])


def artifacts(folder: Path) -> dict[str, tuple[bytes, int]]:
    return contents(folder / "artifacts")


def test_a_lesson_is_broken_seen_in_the_plan_found_by_the_doctor_and_mended(folder: Path, capsys: Printed) -> None:
    before = artifacts(folder)
    assert stage(folder, "break", "etcd-serving") == 0
    told = capsys.readouterr().out
    assert "calls it unhealthy" in " ".join(told.split())
    assert "clientAuth" not in told
    assert stage(folder, "plan", "--exit-code") == 1
    assert "tls/etcd-serving-bootstrap.crt" in capsys.readouterr().out
    assert stage(folder, "doctor") == 1
    assert "(known as etcd-serving: umbilical explain etcd-serving)" in capsys.readouterr().out
    assert stage(folder, "break", "--mend") == 0
    assert "it was: etcd-serving-bootstrap has serverAuth and no clientAuth" in capsys.readouterr().out
    assert artifacts(folder) == before
    assert stage(folder, "doctor") == 0


def test_lessons_are_listed_by_what_one_sees(folder: Path, capsys: Printed) -> None:
    assert stage(folder, "break", "--list") == 0
    out = capsys.readouterr().out
    assert "httpchk  (kubernetes, openshift, --live)" in out
    assert "check-ssl" not in out


@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        ([], 2, "UMB001"),
        (["httpcheck"], 2, "UMB751"),
        (["--mend"], 3, "UMB752"),
        (["feature-gate"], 3, "UMB753"),
    ],
)
def test_what_cannot_be_done_is_three_lines(
    folder: Path, arguments: list[str], status: int, code: str, capsys: Printed
) -> None:
    before = artifacts(folder)
    assert stage(folder, "break", *arguments) == status
    assert capsys.readouterr().err.startswith(code)
    assert artifacts(folder) == before


def test_another_lesson_than_the_one_under_way_is_not_mended(folder: Path, capsys: Printed) -> None:
    assert stage(folder, "break", "httpchk") == 0
    assert stage(folder, "break", "kubelet-ca", "--mend") == 3
    assert "the lesson under way is httpchk" in capsys.readouterr().err


def test_an_answer_can_be_looked_up(capsys: Printed) -> None:
    assert main.run(["explain", "httpchk"]) == 0
    assert "in plain HTTP of servers that speak TLS" in capsys.readouterr().out
