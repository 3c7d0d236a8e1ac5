"""The settings tables: each has all settings of its daemon, and every row has an effect."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests.architecture.rooms import PACKAGE
from tests.cli.native import options_of

from umbilical.cli import engines
from umbilical.cli.drop_ins.drop_in import flags_of, values_of
from umbilical.cli.drop_ins.pflag import FlagSet
from umbilical.cli.options import native_values, settings_options
from umbilical.proxies.settings import HTTPS, SOCKS5, HttpsSettings, Socks5Settings
from umbilical.record import Record
from umbilical.tunnel.setting_rows import Setting, Table, Value, assemble
from umbilical.tunnel.settings import AGENT, SERVER, AgentSettings, Keepalive, ServerSettings

TABLES = {ServerSettings: SERVER, AgentSettings: AGENT, Socks5Settings: SOCKS5, HttpsSettings: HTTPS}
ENGINES = {
    "kubernetes": engines.KubernetesAccess,
    "tokens": engines.TokenRule,
    "lease": engines.LeaseRule,
    "leases": engines.LeaseSelection,
}
WITHOUT_ROW = {
    "token_identity": "follows from the token settings",
    "admin_tls.authority": "readers of the status show a token, not a certificate",
    "listener.ipv6_if_there": "says whether --listen was given",
    "default_connect_port": "HyperShift's port, a constant of its program",
    "limits.tunnel_buffer_bytes": "the memory of a tunnel: measured, not for users",
    "limits.pause_above_bytes": "the same",
    "limits.own_streams": "off in tests only",
    "limits.half_closed_idle_seconds": "a constant of the protocol's ends",
    "limits.concurrent_dials": "the agent's alone: the server has the record, and no dials",
    "listener.buffer_bytes": "the memory of a connection: measured, not for users",
    "outbound.dialer.buffer_bytes": "the same",
    "tls.revoked": "for peers of a listener; these have the record only for certificate and CA",
    "outbound.dialer.tls.revoked": "the same",
    "listen_tls.revoked": "the same",
    "admin_tls.revoked": "the same",
}
by_daemon = pytest.mark.parametrize(("settings", "table"), TABLES.items(), ids=lambda one: getattr(one, "__name__", ""))


def paths(record: type[Record], prefix: str = "") -> Iterator[str]:
    """The paths of a record's values; a record inside it is followed."""
    for name, annotation in inspect.get_annotations(record).items():
        if isinstance(annotation, type) and issubclass(annotation, Record) and annotation.__name__ != "ListenAddress":
            yield from paths(annotation, f"{prefix}{name}.")
        else:
            yield prefix + name


def covers(path: str, field: str) -> bool:
    """Whether the field is that value, or part of one that is not a record."""
    return field == path or field.startswith(f"{path}.")


def attributes_read(files: Iterator[Path]) -> set[str]:
    trees = (ast.walk(ast.parse(file.read_text())) for file in files)
    return {node.attr for tree in trees for node in tree if isinstance(node, ast.Attribute)}


@by_daemon
def test_every_setting_has_a_row(settings: type[Record], table: Table) -> None:
    unsaid = [path for path in paths(settings) if not any(covers(path, row.field) for row in table)]
    assert [path for path in unsaid if path not in WITHOUT_ROW] == []


@by_daemon
def test_every_row_sets_a_field_or_is_marked_without_effect(settings: type[Record], table: Table) -> None:
    known = [*paths(settings), "log.format", "log.level"]
    known += [path for name, record in ENGINES.items() for path in (name, *paths(record, f"{name}."))]
    lost = [row for row in table if row.field and not any(covers(path, row.field) for path in known)]
    silent = [
        row for row in table if not row.field and "without effect" not in row.help and not row.flags[0].deprecated
    ]
    assert lost + silent == []


def test_every_setting_is_read_by_a_daemon() -> None:
    """Outside `cli`, which only fills settings in; what it starts the daemons with is read there."""
    files = [file for file in PACKAGE.rglob("*.py") if "cli" not in file.relative_to(PACKAGE).parts]
    read = attributes_read(file for file in files if file.name != "settings.py")
    started = attributes_read(iter([PACKAGE / "cli" / "engines.py"]))
    fields = {path.rpartition(".")[2] for settings in TABLES for path in paths(settings)}
    assert fields - read == set()
    assert {path for record in ENGINES.values() for path in paths(record)} - started == set()


@by_daemon
def test_every_row_can_be_given_is_explained_and_has_a_reason_for_its_default(
    settings: type[Record], table: Table
) -> None:
    unexplained = [row for row in table if not row.help.endswith(".") or (row.default and not row.why)]
    unreachable = [row for row in table if not row.native and not row.flags]
    assert unexplained + unreachable == []


@by_daemon
def test_a_flag_occurs_once_in_a_table(settings: type[Record], table: Table) -> None:
    names = [flag.name for row in table for flag in row.flags]
    assert len(names) == len(set(names))
    shared = [row.native for row in table if row.native]
    assert {name for name in shared if shared.count(name) > 1} <= {"--keepalive", "--keepalive-answer"}


def test_a_new_row_is_a_flag_an_option_and_a_value_without_further_code() -> None:
    table = (Setting("answer_seconds", Value.SECONDS, "--answer", "5s", help="Some time.", upstream="answer-time"),)
    flags = FlagSet("test", flags_of(table))
    flags.parse(["--answer-time=7s"])
    command = click.command()(settings_options(table)(lambda **_: None))
    options = options_of(command, ["--answer=8s"])
    assert assemble(Keepalive, values_of(table, flags)) == Keepalive(3600.0, 7.0)
    assert assemble(Keepalive, native_values(table, options)) == Keepalive(3600.0, 8.0)
    assert options_of(command, []) == {"answer": 5.0}


def test_values_become_a_record_by_their_paths() -> None:
    values = {"interval_seconds": 1.0, "other.answer_seconds": 2.0}
    assert assemble(Keepalive, values) == Keepalive(1.0, 20.0)
    assert assemble(Keepalive, values, "other.") == Keepalive(3600.0, 2.0)
