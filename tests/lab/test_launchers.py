"""Scripts around this Python, and links to everything else."""

import stat
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from umbilical.lab.launchers import OWN_PROGRAMS, fill, launcher


@pytest.mark.parametrize("module", OWN_PROGRAMS.values())
def test_every_program_of_ours_has_a_main(module: str) -> None:
    assert callable(import_module(module).main)


def test_a_folder_is_filled_with_scripts_and_links(tmp_path: Path) -> None:
    fill(tmp_path, {"kubectl": Path("/opt/kubectl-v1"), "proxy-server": Path("/opt/upstream/proxy-server")})
    assert {path.name for path in tmp_path.iterdir()} == {*OWN_PROGRAMS, "kubectl"}
    assert (tmp_path / "kubectl").readlink() == Path("/opt/kubectl-v1")
    assert stat.S_IMODE((tmp_path / "proxy-server").stat().st_mode) == 0o755


def test_upstreams_programs_do_not_take_the_place_of_ours(tmp_path: Path) -> None:
    fill(tmp_path, {"proxy-server": Path("/opt/upstream/proxy-server")})
    assert "umbilical.cli.proxy_server" in (tmp_path / "proxy-server").read_text()


def test_a_launcher_runs_with_its_arguments_and_passes_the_exit_code_on(tmp_path: Path) -> None:
    (tmp_path / "said.py").write_text("import sys\ndef main():\n    print(sys.argv[1:])\n    return 7\n")
    script = tmp_path / "program"
    script.write_text(launcher("said"))
    script.chmod(0o755)
    environment = {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([script, "a b", "$HOME"], capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout) == (7, "['a b', '$HOME']\n")


def test_a_python_with_a_long_path_and_blanks_is_no_obstacle(tmp_path: Path) -> None:
    folder = tmp_path / ("it's a long path " * 12)
    folder.mkdir()
    (folder / "python").symlink_to(sys.executable)
    script = tmp_path / "program"
    script.write_text(launcher("umbilical.cli.main", str(folder / "python")))
    script.chmod(0o755)
    environment = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    done = subprocess.run([script, "version"], capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.startswith("umbilical "), done.stderr
