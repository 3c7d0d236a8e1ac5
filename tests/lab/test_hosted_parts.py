"""The parts of a hosted control plane: every command finds its files, and our own programs take it."""

from datetime import UTC, datetime
from typing import Any

import click
import pytest

from umbilical.assets.hosted import names
from umbilical.cli.proxy_https import https
from umbilical.cli.proxy_socks5 import socks5
from umbilical.lab import hosted_parts
from umbilical.lab.hosted_parts import API_NODE, SERVER_NODES, HostedParts, Part
from umbilical.lab.proxy_client import Kind
from umbilical.pki.certificate import read_certificates
from umbilical.pki.hosted_table import CLIENT, CONTROL_PLANE_AGENT, SERVER

NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def parts() -> HostedParts:
    return hosted_parts.make_parts(hosted_parts.topology(), NOW)


def _named_files(part: Part) -> set[str]:
    words = [word.rpartition("=")[2] for word in part.command]
    return {word for word in words if word.startswith("/")}


def test_the_rendered_server_finds_every_file_that_it_names(parts: HostedParts) -> None:
    assert parts.server.command[0] == "proxy-server"
    assert f"--server-count={len(SERVER_NODES)}" in parts.server.command
    assert _named_files(parts.server) <= set(parts.server.files)
    assert f"{names.SERVER_SERVER_DIRECTORY}/tls.crt" in parts.server.files


def test_the_rendered_agent_of_the_control_plane_announces_the_aggregated_api_alone(parts: HostedParts) -> None:
    agent = parts.control_plane_agent
    address = hosted_parts.topology().node(API_NODE).address
    assert agent.command[0] == "proxy-agent"
    assert f"--agent-identifiers=ipv4={address}" in agent.command
    assert _named_files(agent) <= set(agent.files)
    shown = agent.files[f"{names.AGENT_PAIR_DIRECTORY}/tls.crt"]
    assert read_certificates(shown)[0].common_name == CONTROL_PLANE_AGENT.common_name


def test_objects_of_the_hosted_cluster_are_those_of_its_nodes_and_those_of_the_api(parts: HostedParts) -> None:
    assert "DaemonSet" in {one["kind"] for one in parts.agent_objects}
    assert {one["kind"] for one in parts.api_objects} >= {"Service", "EndpointSlice", "APIService"}
    assert not any(one in parts.api_objects for one in parts.agent_objects)


def test_a_renewed_certificate_is_another_one_of_the_same_signer_and_all_others_stay(parts: HostedParts) -> None:
    renewed = parts.renewed(SERVER, NOW)
    assert renewed.pki.leaves[SERVER.id] != parts.pki.leaves[SERVER.id]
    assert renewed.pki.leaves[CLIENT.id] == parts.pki.leaves[CLIENT.id]
    assert renewed.pki.signers == parts.pki.signers
    changed = {path for path, content in renewed.server.files.items() if parts.server.files[path] != content}
    folder = names.SERVER_SERVER_DIRECTORY
    assert changed == {f"{folder}/tls.crt", f"{folder}/tls.key"}


def test_the_aggregated_api_finds_its_pair_and_ends_its_connections(parts: HostedParts) -> None:
    part = parts.api.part
    assert {word for word in part.command if word.startswith("/")} == set(part.files)
    assert "--close-connections" in part.command


def _options(command: click.Command, words: list[str]) -> dict[str, Any]:
    return command.make_context(words[2], words[3:]).params


@pytest.mark.parametrize(("kind", "command"), [("socks5", socks5), ("https", https)])
def test_a_proxy_is_told_of_all_servers_in_order_and_finds_its_files(
    parts: HostedParts, kind: str, command: click.Command
) -> None:
    words = hosted_parts.proxy_command(kind, 1080, 2042, ["192.168.91.12", "192.168.91.11"], ["--resolve", "agent"])
    options = _options(command, words)
    assert [(server.host, server.port) for server in options["server"]] == [
        ("192.168.91.12", names.FRONTEND_PORT),
        ("192.168.91.11", names.FRONTEND_PORT),
    ]
    assert options["server_name"] in parts.spec.frontend_names
    assert {str(options[name]) for name in ("ca", "cert", "key")} <= set(parts.proxy_files)


def test_dns_knows_the_given_names_and_no_other_server() -> None:
    command = hosted_parts.dns_command("10.91.0.22", {"a.example": "10.92.0.2"})
    assert "--host-record=a.example,10.92.0.2" in command
    assert {"--no-resolv", "--no-hosts", "--bind-interfaces", "--listen-address=10.91.0.22"} <= set(command)


def test_every_kind_of_proxying_has_a_way_to_the_same_name() -> None:
    ways = hosted_parts.ways()
    assert {way.kind for way in ways.values()} == set(Kind)
    assert {way.host for way in ways.values()} == {hosted_parts.SERVICE_NAME}
