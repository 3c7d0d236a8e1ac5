"""`umbilical lab status` and `umbilical lab shell`."""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from umbilical.checks.report import API_VERSION
from umbilical.cli.findings import output_option
from umbilical.cli.lab.options import chosen_directory, lab_options
from umbilical.codes import FINDINGS

if TYPE_CHECKING:
    from umbilical.lab.lab import Lab
    from umbilical.lab.runner import PodStatus
    from umbilical.lab.state import LabDirectory, LabState

_NONE: Final = "-"


@click.command()
@lab_options
@output_option("table", "json")
def status(name: str, directory: Path | None, output: str) -> int:
    """Show a lab's nodes, pods, processes and breakages.

    The exit status is 1 if the lab exists but its keeper process has ended, so that nothing runs in it.
    """
    from umbilical.lab.state import LabDirectory

    place = LabDirectory(chosen_directory(name, directory))
    state, lab = _look(place)
    value = describe(place, state, lab)
    click.echo(json.dumps(value, indent=2) if output == "json" else _table(value), nl=output == "json")
    if lab is None:
        click.echo(f"\n{_why_not_up(place)}", err=True)
    return 0 if lab is not None else FINDINGS


def _why_not_up(place: "LabDirectory") -> str:
    from umbilical.lab.removal import is_held

    if is_held(place):
        return "the lab is being created"
    return f"the lab's keeper process has ended; remove the lab: umbilical lab down --dir {place.path}"


def _look(place: "LabDirectory") -> "tuple[LabState, Lab | None]":
    """Return the saved state, and the lab itself if it is up. Raises LabError: there is no lab."""
    from umbilical.lab.lab import Lab
    from umbilical.lab.state import read_state

    state = read_state(place)
    if state is not None and not state.is_alive():
        return state, None
    lab = Lab.open(place.path)
    return lab.state, lab


def describe(place: "LabDirectory", state: "LabState", lab: "Lab | None") -> dict[str, Any]:
    network = {} if lab is None else lab.describe_network()["nodes"]
    management = state.topology.management
    return {
        "apiVersion": API_VERSION,
        "kind": "LabStatus",
        "name": state.name,
        "isUp": lab is not None,
        "directory": str(place.path),
        "keeperPid": state.keeper_pid,
        "isRootless": state.is_rootless,
        "runner": state.runner.value,
        "machineNetworks": [str(each) for each in state.topology.machine_networks],
        "podNetworks": [str(each) for each in state.topology.pod_networks],
        "managementNetworks": [str(each) for each in management.networks] if management else [],
        "serviceNetworks": [str(each) for each in state.topology.service_networks],
        "nodes": [
            {
                "name": node.name,
                "role": node.role.value,
                "addresses": [str(address.ip) for address in node.addresses],
                "podNetworks": [str(each) for each in node.pod_networks],
                "isLinked": network.get(node.name, {}).get("is_linked"),
                "hasDefaultRoute": network.get(node.name, {}).get("has_default_route"),
                "rules": network.get(node.name, {}).get("rules", []),
            }
            for node in state.topology.nodes
        ],
        "pods": [] if lab is None else [_pod(pod) for pod in _pods(lab)],
        "processes": [] if lab is None else [_process(lab, each) for each in lab.processes()],
        "faults": sorted(state.faults),
    }


def _pods(lab: "Lab") -> Iterable["PodStatus"]:
    """List the pods of each node; a node without a runner, or with one that is starting, has none."""
    from umbilical.fault import LabError
    from umbilical.lab.runners import runner_of

    for node in lab.topology.nodes:
        try:
            yield from runner_of(lab).pods(lab, node.name)
        except (LabError, OSError, ValueError):
            continue


def _pod(pod: "PodStatus") -> dict[str, Any]:
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "node": pod.node,
        "address": pod.address,
        "isReady": pod.is_ready,
        "containers": [
            {"name": each.name, "pid": each.pid, "restarts": each.restarts, "isReady": each.is_ready}
            for each in pod.containers
        ],
    }


def _process(lab: "Lab", each: Any) -> dict[str, Any]:
    log = str(lab.directory.log_file(each.node, each.name))
    return {"node": each.node, "name": each.name, "pid": each.pid, "exitCode": each.exit_code, "log": log}


def _table(value: dict[str, Any]) -> str:
    parts = [_head(value), _rows(_node_rows(value))]
    if value["pods"]:
        parts.append(_rows(_pod_rows(value)))
    if value["processes"]:
        parts.append(_rows(_process_rows(value)))
    parts.append(f"breakages: {', '.join(value['faults']) or 'none'}\n")
    return "\n".join(parts)


def _head(value: dict[str, Any]) -> str:
    how = "without root" if value["isRootless"] else "as root"
    is_up = f"up, {how}, keeper {value['keeperPid']}, runner {value['runner']}" if value["isUp"] else "NOT UP"
    kinds = [kind for kind in ("management", "machine", "pod", "service") if value[f"{kind}Networks"]]
    networks = [f"{kind} {', '.join(value[f'{kind}Networks'])}" for kind in kinds]
    return f"{value['name']}: {is_up}\n{value['directory']}\n{'; '.join(networks)}\n"


def _node_rows(value: dict[str, Any]) -> Iterable[Sequence[str]]:
    yield ("NODE", "ADDRESS", "PODS", "LINK", "DEFAULT ROUTE", "RULES")
    for node in value["nodes"]:
        yield (
            node["name"],
            ",".join(node["addresses"]),
            ",".join(node["podNetworks"]) or _NONE,
            _word(node["isLinked"], "up", "CUT"),
            _word(node["hasDefaultRoute"], "yes", "GONE"),
            ",".join(node["rules"]) or _NONE,
        )


def _word(answer: bool | None, yes: str, no: str) -> str:
    return _NONE if answer is None else yes if answer else no


def _pod_rows(value: dict[str, Any]) -> Iterable[Sequence[str]]:
    yield ("NODE", "POD", "READY", "RESTARTS", "ADDRESS")
    for pod in value["pods"]:
        containers = pod["containers"]
        ready = f"{sum(each['isReady'] for each in containers)}/{len(containers)}"
        restarts = str(sum(each["restarts"] for each in containers))
        yield (pod["node"], f"{pod['namespace']}/{pod['name']}", ready, restarts, pod["address"])


def _process_rows(value: dict[str, Any]) -> Iterable[Sequence[str]]:
    yield ("NODE", "PROCESS", "STATE", "LOG")
    for each in value["processes"]:
        code = each["exitCode"]
        state = f"runs, pid {each['pid']}" if code is None else f"ended with {code}"
        yield (each["node"], each["name"], state, each["log"])


def _rows(rows: Iterable[Sequence[str]]) -> str:
    cells = [list(row) for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join(lines) + "\n"


@click.command(context_settings={"ignore_unknown_options": True})
@lab_options
@click.argument("node")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def shell(name: str, directory: Path | None, node: str, command: tuple[str, ...]) -> NoReturn:
    """Open a shell on NODE, or run COMMAND there.

    Example: umbilical lab shell master-0 -- ip route. The exit status is that of COMMAND.
    """
    from umbilical.lab.lab import Lab

    words = Lab.open(chosen_directory(name, directory)).shell(node, command)
    os.execvp(words[0], words)
