"""Options that several of our own commands share, and checks of files that they name."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from umbilical.cli import log_setup
from umbilical.cli.param_types import FILE, duration
from umbilical.fault import StartupError
from umbilical.tunnel.settings import Keepalive, TlsFiles

Command = Callable[..., Any]
PING_AFTER: Final = "31s"
"""The shortest silence after which grpc-go's servers tolerate a ping (30 s), with a second to spare."""
PING_ANSWER: Final = "10s"

LOGGING: Final = (
    click.option(
        "--log-format",
        type=click.Choice(["text", "json", "klog"]),
        default="text",
        show_default=True,
        help="Log lines.",
    ),
    click.option(
        "--log-level",
        type=click.Choice(["info", "debug"]),
        default="info",
        show_default=True,
        help="info is one line per tunnel.",
    ),
)
_SHARED: Final = (
    click.option(
        "--keepalive",
        type=duration,
        default=PING_AFTER,
        show_default=True,
        help="Ping the other side after this silence.",
    ),
    click.option(
        "--keepalive-answer",
        type=duration,
        default=PING_ANSWER,
        show_default=True,
        help="Give a connection up when a ping stays unanswered this long.",
    ),
    click.option("--kubeconfig", type=FILE, help="How to reach the apiserver; without it, as a pod in the cluster."),
    click.option("--lease-namespace", default="kube-system", show_default=True, help="Namespace of servers' leases."),
    click.option("--profiling", is_flag=True, help="Serve profiles on the admin address."),
    *LOGGING,
)


def shared_options(command: Command) -> Command:
    for option in reversed(_SHARED):
        command = option(command)
    return command


def start_logging(log_format: str, log_level: str) -> None:
    log_setup.install_native(log_format, debug=log_level == "debug")


def keepalive(options: dict[str, Any]) -> Keepalive:
    return Keepalive(options["keepalive"], options["keepalive_answer"])


def tls_files(prefix: str, certificate: Path | None, key: Path | None, authority: Path | None) -> TlsFiles:
    """Check what can be checked before anything starts: pairs are whole, files can be read."""
    if (certificate is None) != (key is None):
        given, missing = ("key", "cert") if certificate is None else ("cert", "key")
        raise StartupError(
            "UMB003",
            f"--{prefix}{given} without --{prefix}{missing}",
            "a certificate and its key are used together or not at all",
            f"add --{prefix}{missing} FILE",
        )
    for path in (certificate, key, authority):
        check_readable(path)
    return TlsFiles(certificate, key, authority)


def check_readable(path: Path | None) -> None:
    if path is None:
        return
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as fault:
        why = fault.strerror or str(fault)
        raise StartupError("UMB002", f"cannot read {path}", why, f"look at it: ls -l {path}") from None


def missing_option(command: str, option: str, why: str) -> StartupError:
    return StartupError("UMB001", f"{command} needs {option}", why, f"umbilical {command} --help")
