"""`umbilical completion`: the scripts, and what they make the shell ask for."""

import os
import shutil
import subprocess
import sys

import pytest

from umbilical.cli import main

PROGRAM = "from umbilical.cli.main import main; main()"


@pytest.mark.parametrize(
    ("shell", "word"), [("bash", "complete -o nosort"), ("zsh", "#compdef umbilical"), ("fish", "complete --no-files")]
)
def test_each_shell_has_its_script(shell: str, word: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["completion", shell]) == 0
    assert word in capfd.readouterr().out


def test_an_unknown_shell_is_a_usage_fault(capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["completion", "tcsh"]) == 2
    assert capfd.readouterr().err.startswith("UMB001")


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_bash_script_is_valid_bash(capfd: pytest.CaptureFixture[str]) -> None:
    main.run(["completion", "bash"])
    script = capfd.readouterr().out
    subprocess.run(["bash", "-n"], input=script, text=True, timeout=30, check=True)


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("umbilical ser", "server"),
        ("umbilical server run --lis", "--listen"),
        ("umbilical server run --mode h", "http-connect"),
    ],
)
def test_words_are_completed(words: str, offered: str) -> None:
    environment = {
        **os.environ,
        "_UMBILICAL_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    completed = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    assert f"plain,{offered}" in completed.stdout.splitlines()
