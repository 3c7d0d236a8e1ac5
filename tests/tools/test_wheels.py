"""The wheels that `make wheels` built, each installed into its own environment; and the error when a build fails.

A compiled wheel takes a minute of a core, so it is built once, before these tests, and UMBILICAL_WHEELS says where.
"""

import os
import site
import subprocess
import sys
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from tests.support.in_process import echo, listening
from tests.support.tunnel_client import receive_exactly
from tests.support.tunnel_pair import Shape, TunnelPair
from tests.support.tunnel_pki import TunnelPki, make_tunnel_pki

import compiled
import wheels

FOLDER: Final = os.environ.get("UMBILICAL_WHEELS", "")
built = pytest.mark.skipif(not FOLDER, reason="no wheels were built: run `make wheels`")
SECONDS: Final = 100
# Prints where each module of the unit was loaded from.
ORIGINS: Final = "import importlib, sys; [print(importlib.import_module(name).__file__) for name in sys.argv[1:]]"


@dataclass(frozen=True)
class Installation:
    folder: Path
    is_pure: bool
    """The installed one, or the one that the environment requests."""
    environment: dict[str, str]

    def run(self, *command: str) -> str:
        words = [str(self.folder / "bin" / command[0]), *command[1:]]
        done = subprocess.run(
            words, env=self.environment, cwd=self.folder, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def _environment(**more: str) -> dict[str, str]:
    foreign = ("PYTHONPATH", "UMBILICAL_PURE", "UMBILICAL_EXPECT_COMPILED")
    return {name: value for name, value in os.environ.items() if name not in foreign} | more


def _wheel(form: str) -> Path:
    (found,) = Path(FOLDER).glob("*-py3-none-any.whl" if form == "pure" else "*-cp3*-linux_*.whl")
    return found


def _install(folder: Path, *what: str) -> Path:
    venv.create(folder, with_pip=False)
    (packages,) = (folder / "lib").glob("python3*/site-packages")
    # Dependencies are those of our own environment; the network is not used.
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
    command = [*pip, "--no-index", "--no-deps", "--ignore-installed", *what]
    subprocess.run(command, env=_environment(), timeout=SECONDS, check=True)
    return folder


@pytest.fixture(scope="module")
def pure_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _install(tmp_path_factory.mktemp("pure"), str(_wheel("pure")))


@pytest.fixture(scope="module")
def compiled_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """By name, from a folder with both wheels: pip must choose the compiled one by itself."""
    return _install(tmp_path_factory.mktemp("compiled"), "--find-links", FOLDER, "umbilical")


@pytest.fixture(params=["pure wheel", "compiled wheel", "compiled wheel, pure asked for"])
def installation(request: pytest.FixtureRequest) -> Installation:
    if request.param == "pure wheel":
        return Installation(request.getfixturevalue("pure_folder"), True, _environment())
    folder = request.getfixturevalue("compiled_folder")
    if request.param == "compiled wheel":
        return Installation(folder, False, _environment())
    return Installation(folder, True, _environment(UMBILICAL_PURE="1"))


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> TunnelPki:
    return make_tunnel_pki(tmp_path_factory.mktemp("pki"))


@built
def test_version_reports_which_form_runs_and_on_what(installation: Installation) -> None:
    line = installation.run("umbilical", "version")
    assert (", pure, " in line, ", compiled, " in line) == (installation.is_pure, not installation.is_pure)
    assert f" at {installation.folder}/bin/python" in line


@built
def test_every_module_of_the_unit_is_loaded_in_the_form_asked_for(installation: Installation, repository: Path) -> None:
    source = repository / "src"
    paths = [Path(path).relative_to(source) for path in compiled.compiled_modules(source)]
    origins = installation.run("python", "-c", ORIGINS, *(".".join(path.with_suffix("").parts) for path in paths))
    suffix = ".py" if installation.is_pure else ".so"
    assert [line for line in origins.split() if not line.endswith(suffix)] == []
    assert all(line.startswith(str(installation.folder)) for line in origins.split())


@built
def test_texts_and_scripts_come_with_the_code(installation: Installation, tmp_path: Path) -> None:
    """Files other than Python are easily missing in a wheel: the table of codes, the script of the bootstrap node."""
    assert "exit status 7" in installation.run("umbilical", "explain", "UMB745")
    cluster = str(tmp_path / "cluster")
    installation.run("umbilical", "stage", "init", "--dir", cluster, "--masters", "1", "--workers", "0")
    assert "ignition/bootstrap.ign" in installation.run("umbilical", "stage", "plan", "--dir", cluster)


@built
def test_bytes_pass_between_a_server_and_an_agent(installation: Installation, pki: TunnelPki, tmp_path: Path) -> None:
    pair = TunnelPair(Shape(), pki, tmp_path)
    for daemon in (pair.server, pair.agent):
        program = installation.folder / "bin" / Path(daemon.command[0]).name
        asked = f"UMBILICAL_PURE={installation.environment.get('UMBILICAL_PURE', '')}"
        daemon.command = ["env", "-u", "PYTHONPATH", asked, str(program), *daemon.command[1:]]
    try:
        pair.start()
        with listening() as endpoint:
            tunnel = pair.frontend().open(endpoint.serve(echo).address)
            tunnel.send(b"through the wheel")
            assert receive_exactly(tunnel, 17) == b"through the wheel"
            tunnel.close()
    finally:
        pair.stop()


@built
def test_a_compiled_wheel_has_the_source_of_every_compiled_module() -> None:
    names = zipfile.ZipFile(_wheel("compiled")).namelist()
    modules = {name for name in names if name.endswith(".so") and "__mypyc" not in name}
    assert modules
    assert {f"{name.split('.')[0]}.py" for name in modules} <= set(names)


@built
def test_the_wheels_differ_in_what_is_compiled_alone() -> None:
    pure, both = (
        {name for name in zipfile.ZipFile(_wheel(form)).namelist() if ".dist-info/" not in name}
        for form in ("pure", "compiled")
    )
    assert pure == {name for name in both if not name.endswith(".so")}
    assert {name.split("/")[0] for name in both} == {"umbilical"}, "nothing lies beside the package"


def test_modes_in_a_wheel_do_not_depend_on_this_users_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        wheel = wheels.build("pure", tmp_path)
    finally:
        os.umask(before)
    modes = {entry.external_attr >> 16 & 0o777 for entry in zipfile.ZipFile(wheel).infolist()}
    assert modes <= {0o644, 0o664, 0o755}


def test_a_build_that_fails_ends_in_three_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "setup.py").write_text("raise SystemExit('no compiler today')\n")
    monkeypatch.setattr(compiled, "ROOT", tmp_path / "tree")
    with pytest.raises(wheels.WheelRefused) as caught:
        wheels.build("pure", tmp_path / "dist")
    text = str(caught.value)
    assert text.startswith("UMB915 the pure wheel was not built\n  why: ")
    assert "no compiler today" in text
    assert text.splitlines()[-1].startswith("  next: make setup")
    assert list((tmp_path / "dist").iterdir()) == []
