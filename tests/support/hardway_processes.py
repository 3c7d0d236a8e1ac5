"""Static pods of the hard way as plain processes: the files of a node below a scratch root, paths translated.

No mounts, no supervision: what is shown is that the programs take their flags and files.
"""

from pathlib import Path
from typing import Any

import yaml
from tests.support.netns import Namespace
from tests.support.static_processes import peer

from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.artifacts.nodes.render import files_needed
from umbilical.hardway.config.cluster import Node
from umbilical.host.files import make_directory, write_file
from umbilical.host.processes import Child, start
from umbilical.manifests.tree import Asset, AssetTree


def lay_node(root: Path, inputs: Inputs, node: Node, *trees: AssetTree) -> None:
    """Put below a root what the node's Ignition would put onto its disk for its static pods."""
    made: dict[str, Asset] = {asset.path: asset for tree in trees for asset in tree}
    for path, artifact in files_needed(inputs, node).items():
        place = root / path.lstrip("/")
        make_directory(place.parent)
        write_file(place, made[artifact].content, made[artifact].mode)


def command_line(root: Path, pod: dict[str, Any], container: int = 0) -> list[str]:
    """Translate a container's command for a process that sees the host below `root`."""
    spec = pod["spec"]["containers"][container]
    program = peer(spec["command"][-1].rpartition("/")[2])
    return [program, *(_translated(word, _places(root, pod, spec)) for word in spec["args"])]


def environment(pod: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in pod["spec"]["containers"][0].get("env", ())}


def start_pod(root: Path, namespace: Namespace, manifest: Path) -> Child:
    pod = yaml.safe_load(manifest.read_bytes())
    name = pod["spec"]["containers"][0]["name"]
    variables = [f"{key}={value}" for key, value in environment(pod).items()]
    command = ["env", *variables, *command_line(root, pod)]
    return start(namespace.command(*command), root / f"{name}.log", name=name)


def _places(root: Path, pod: dict[str, Any], container: dict[str, Any]) -> dict[str, str]:
    """Mount path -> directory of this machine, the longest first."""
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    places = {}
    for mount in container["volumeMounts"]:
        host = volumes[mount["name"]].get("hostPath", {}).get("path", mount["mountPath"])
        places[mount["mountPath"]] = f"{root}{host}"
    return dict(sorted(places.items(), key=lambda item: -len(item[0])))


def _translated(word: str, places: dict[str, str]) -> str:
    flag, equals, value = word.partition("=")
    parts = [_place(part, places) for part in value.split(",")]
    return f"{flag}{equals}{','.join(parts)}"


def _place(part: str, places: dict[str, str]) -> str:
    for inside, outside in places.items():
        if part == inside or part.startswith(f"{inside}/"):
            return outside + part[len(inside) :]
    return part
