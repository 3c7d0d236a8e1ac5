"""`umbilical bootstrap ssh`: a shell on the bootstrap machine, or the command that opens one."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from umbilical.cli.bootstrap.options import DIRECTORY, node_access, node_options
from umbilical.cli.options import FILE

if TYPE_CHECKING:
    from umbilical.bootstrap.install_dir import InstallDir
    from umbilical.host.commands import SshRunner

_NO_KEY: Final = "note: the installer's key is in the state file; add --key-out FILE to write it"


@click.command()
@click.argument("command", nargs=-1)
@click.option("--dir", "directory", type=DIRECTORY, required=True, help="Install directory; gives address and key.")
@click.option("--print", "prints", is_flag=True, help="Print the ssh command instead of running it.")
@click.option("--key-out", type=FILE, help="New file for the installer's key, with mode 0600; requires --print.")
@node_options
def ssh(command: tuple[str, ...], directory: Path, prints: bool, key_out: Path | None, **options: Any) -> int:
    """Open a shell on the bootstrap machine, or run COMMAND there.

    The address is read from the output of Cluster API installers, which exists once the machine is created.
    """
    from umbilical.bootstrap.install_dir import InstallDir
    from umbilical.bootstrap.node_access import node_runner

    if key_out is not None and not prints:
        raise click.UsageError("--key-out needs --print: without it the key is used from a temporary file")
    install = InstallDir(directory)
    access = node_access(options)
    with node_runner(access, install) as runner:
        assert runner is not None, "an install directory names a machine, or is an error"
        if not prints:
            return runner.interactive(command)
        key = access.key if key_out is None else _written(install, key_out)
        click.echo(shlex.join(_command(runner, key, command)))
        if key is None and runner.key is not None:
            click.echo(_NO_KEY, err=True)
    return 0


def _written(install: "InstallDir", target: Path) -> Path:
    from umbilical.host.files import write_file

    with install.ssh_key() as key:
        return write_file(target, key.read_bytes())


def _command(runner: "SshRunner", key: Path | None, command: tuple[str, ...]) -> list[str]:
    identity = [] if key is None else ["-i", str(key)]
    remote = [shlex.join(command)] if command else []
    return ["ssh", *identity, "-p", str(runner.port), f"{runner.user}@{runner.host}", *remote]
