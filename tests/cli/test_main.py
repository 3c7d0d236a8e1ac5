"""`umbilical`: finding commands, failing in three lines, loading little."""

import subprocess
import sys

import click
import pytest

from umbilical.cli import main

HEAVY = ("click", "cryptography", "yaml", "lightkube", "httpx2", "uuid", "json", "urllib.request")


def loaded(script: str) -> set[str]:
    code = f"import sys\n{script}\nprint(*sys.modules)"
    completed = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    return set(completed.stdout.split())


def test_every_command_is_a_module_of_its_name() -> None:
    context = click.Context(main.umbilical)
    for name in main.umbilical.list_commands(context):
        command = main.umbilical.get_command(context, name)
        assert command is not None
        assert command.get_short_help_str()


@pytest.mark.parametrize("arguments", [[], ["server"], ["agent"]])
def test_no_command_shows_the_help_and_is_a_usage_fault(
    arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main.run(arguments) == 2
    assert "Usage: umbilical" in capfd.readouterr().err


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["server", "run", "--help"], ["agent", "run", "-h"]])
def test_help_is_no_fault(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(arguments) == 0
    assert "Usage: umbilical" in capfd.readouterr().out


@pytest.mark.parametrize("arguments", [["nope"], ["server", "nope"], ["version", "--nope"], ["server", "run"]])
def test_wrong_usage_is_told_in_three_lines(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(arguments) == 2
    lines = capfd.readouterr().err.splitlines()
    assert lines[0].startswith("UMB001 umbilical")
    assert lines[1].startswith("  why: ")
    assert lines[2].startswith("  next: umbilical")
    assert lines[2].endswith("--help")


@pytest.mark.parametrize(
    ("raised", "status", "word"), [(KeyboardInterrupt(), 8, ""), (RuntimeError("broken"), 10, "UMB099")]
)
def test_interrupts_and_our_own_faults_have_their_statuses(
    raised: BaseException, status: int, word: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise raised

    monkeypatch.setattr(main.umbilical, "main", fail)
    assert main.run([]) == status
    assert word in capfd.readouterr().err


@pytest.mark.parametrize("program", ["proxy_server", "proxy_agent"])
def test_the_drop_in_programs_load_little(program: str) -> None:
    modules = loaded(f"import umbilical.cli.{program}")
    assert not modules & set(HEAVY)


@pytest.mark.parametrize(("program", "engine"), [("proxy_server", "server_process"), ("proxy_agent", "agent_process")])
def test_the_engines_load_no_click_no_cryptography_no_kubernetes_client(program: str, engine: str) -> None:
    modules = loaded(f"import umbilical.cli.{program}, umbilical.tunnel.{engine}, umbilical.tunnel.event_loop")
    assert not modules & {"click", "cryptography", "yaml", "lightkube", "httpx2"}


def test_a_native_command_loads_no_kubernetes_client_until_it_needs_one() -> None:
    modules = loaded("import umbilical.cli.main, umbilical.cli.server, umbilical.cli.agent")
    assert not modules & {"cryptography", "yaml", "lightkube", "httpx2"}
