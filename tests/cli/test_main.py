"""The program: its commands, their completion, and how errors are printed."""

import os
import shutil
import subprocess
import sys

import click
import pytest
from tests.support.commands import Run, modules_loaded
from tests.support.compiled_unit import is_compiled
from tests.support.fixture_types import Patch

from umbilical import __version__, codes
from umbilical.cli import main
from umbilical.cli.main import LazyGroup
from umbilical.fault import Fault

HEAVY = ("click", "cryptography", "yaml", "lightkube", "httpx2", "uuid", "json", "urllib.request")


def test_every_command_is_a_module_of_its_name() -> None:
    context = click.Context(main.umbilical)
    for name in main.umbilical.list_commands(context):
        command = main.umbilical.get_command(context, name)
        assert command is not None
        assert command.get_short_help_str()


def test_help_exits_0_and_a_missing_command_exits_2(umbilical: Run) -> None:
    for arguments in ([], ["server"], ["agent"]):
        assert "Usage: umbilical" in umbilical(*arguments, status=2).err
    for arguments in (["--help"], ["-h"], ["server", "run", "--help"], ["agent", "run", "-h"]):
        assert "Usage: umbilical" in umbilical(*arguments).out


def test_wrong_usage_is_reported_in_three_lines(umbilical: Run) -> None:
    for arguments in (["nope"], ["server", "nope"], ["version", "--nope"], ["server", "run"], ["completion", "tcsh"]):
        what, why, remedy = umbilical(*arguments, status=2).err.splitlines()
        assert what.startswith("UMB001 umbilical")
        assert why.startswith("  why: ")
        assert remedy.startswith("  next: umbilical")
        assert remedy.endswith("--help")


HOSTILE = Fault("UMB603", "no answer", "peer said \x1b[2J\u202e", "try \\d+")


@pytest.mark.parametrize(
    ("raised", "status", "word"),
    [
        (KeyboardInterrupt(), 8, ""),
        (RuntimeError("broken"), 10, "UMB099"),
        (HOSTILE, HOSTILE.exit_status, "peer said \\x1b[2J\\u202e\n  next: try \\d+\n"),
    ],
    ids=("interrupt", "fault of ours", "text of a peer that would steer the terminal"),
)
def test_interrupts_and_our_own_faults_have_their_statuses(
    raised: BaseException, status: int, word: str, monkeypatch: Patch, umbilical: Run
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise raised

    monkeypatch.setattr(main.umbilical, "main", fail)
    assert word in umbilical(status=status).err


def test_drop_ins_engines_and_native_commands_load_little() -> None:
    for program in ("proxy_server", "proxy_agent"):
        modules = modules_loaded(f"import umbilical.cli.drop_ins.{program}")
        assert not modules & set(HEAVY)
    for program, engine in (("proxy_server", "server_process"), ("proxy_agent", "agent_process")):
        modules = modules_loaded(
            f"import umbilical.cli.drop_ins.{program}, umbilical.tunnel.{engine}, umbilical.tunnel.event_loop"
        )
        assert not modules & {"click", "cryptography", "yaml", "lightkube", "httpx2"}
    run_version = "from umbilical.cli.main import run; run(['version'])"
    for script in ("import umbilical.cli.main, umbilical.cli.server, umbilical.cli.agent", run_version):
        assert not modules_loaded(script) & {"cryptography", "yaml", "lightkube", "httpx2"}


def test_a_command_is_found_in_its_module_or_is_our_own_fault() -> None:
    group = LazyGroup("tools", modules={"list": "umbilical.cli.lab.breakages"})

    command = group.get_command(click.Context(group), "list")

    assert command is not None
    assert command.name == "list"
    group = LazyGroup("tools", modules={"nothing": "umbilical.cli.version"})

    with pytest.raises(AttributeError):
        group.get_command(click.Context(group), "nothing")


PROGRAM = "from umbilical.cli.main import main; main()"


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_each_shell_has_its_script_and_bash_takes_its_own(umbilical: Run) -> None:
    for shell, word in (("bash", "complete -o nosort"), ("zsh", "#compdef umbilical"), ("fish", "complete --no-files")):
        assert word in umbilical("completion", shell).out
    script = umbilical("completion", "bash").out
    subprocess.run(["bash", "-n"], input=script, text=True, timeout=30, check=True)


def test_words_are_completed() -> None:
    for words, offered in (
        ("umbilical ser", "server"),
        ("umbilical server run --lis", "--listen"),
        ("umbilical server run --mode h", "http-connect"),
    ):
        asked = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        environment = {**os.environ, "_UMBILICAL_COMPLETE": "bash_complete", **asked}
        command = [sys.executable, "-c", PROGRAM]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
        assert f"plain,{offered}" in done.stdout.splitlines()


def test_the_answer_shows_the_form_that_runs_and_its_interpreter(umbilical: Run) -> None:
    form = "compiled" if is_compiled() else "pure"
    line = umbilical("version").out
    assert line.startswith(f"umbilical {__version__} (konnectivity v")
    assert f", {form}, python 3." in line
    assert line.endswith(f" at {sys.executable})\n")
    answer = umbilical("version", "-o", "json").json()
    assert (answer["apiVersion"], answer["kind"]) == ("umbilical.dev/v1alpha1", "Version")
    assert (answer["version"], answer["form"]) == (__version__, form)
    assert answer["interpreter"].endswith(sys.executable)


def test_every_code_is_explained_with_its_remedy_and_its_exit_status(umbilical: Run) -> None:
    listed = umbilical("explain", "--list").out.split()
    assert [code for code in codes.codes() if code not in listed] == []
    told = umbilical("explain", "UMB745").out
    assert "P1 to P8" in told
    assert "stage retry 13" in told
    assert f"exit status {codes.UNSAFE}" in told
