"""Objects before a real kube-apiserver: created as far as storing, strictly as they are."""

from typing import Any

from tests.support.control_plane import ControlPlane

from umbilical.manifests.tree import yaml_bytes

Object = dict[str, Any]


def dry_run(plane: ControlPlane, values: list[Object], *flags: str) -> None:
    """Create them as far as storing; warnings count as refusals unless a flag says otherwise."""
    arguments = ("create", "--dry-run=server", "--validate=strict", *(flags or ("--warnings-as-errors",)), "-f", "-")
    said = plane.kubectl(*arguments, stdin="---\n".join(yaml_bytes(value).decode() for value in values))
    assert said.count("created (server dry run)") == len(values), said


def as_pod(workload: Object) -> Object:
    """What its controller would create: some rules are enforced on pods alone."""
    template = workload["spec"]["template"]
    metadata = {**template["metadata"], "name": "one", "namespace": workload["metadata"]["namespace"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
