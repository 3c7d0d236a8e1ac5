"""From the plain object of a manifest to a `Pod`. What the process runner cannot give is refused by name.

Fields that change nothing here (resources, priorities, tolerations, seccomp) are passed over.
"""

from typing import Any

from umbilical.lab.pods.documents import read_documents, unreadable
from umbilical.lab.pods.fields import Fields
from umbilical.lab.pods.manifest_containers import containers, names_are_unique
from umbilical.lab.pods.manifest_volumes import volumes
from umbilical.lab.pods.spec import Container, Pod, RestartPolicy, Volume


def read_static_pod(content: bytes, title: str) -> Pod:
    """Read the one pod of a file in a static pod directory.

    Raises:
        PodError: UMB830 or UMB831.
    """
    documents = read_documents(content, title)
    if len(documents) != 1:
        raise unreadable(title, f"it holds {len(documents)} objects; a static pod is one")
    document = documents[0]
    if (document.get("apiVersion"), document.get("kind")) != ("v1", "Pod"):
        raise unreadable(title, "it is no v1 Pod")
    return pod(document)


def pod(document: dict[str, Any]) -> Pod:
    """Read a Pod object; one without uid has none yet.

    Raises:
        PodError: UMB831.
    """
    top = Fields(document, "pod")
    return pod_of(top.needed("metadata"), top.needed("spec"))


def pod_of(metadata: Fields, spec: Fields, name: str | None = None) -> Pod:
    """`name` is for a template's pod, which has none of its own."""
    security = spec.child("securityContext")
    found = Pod(
        name=metadata.name("name") if name is None else name,
        namespace=metadata.name("namespace") if "namespace" in metadata else "default",
        uid=metadata.name("uid") if "uid" in metadata else "",
        containers=containers(spec, "containers", security),
        init_containers=containers(spec, "initContainers", security),
        volumes=volumes(spec),
        labels=metadata.table("labels"),
        annotations=metadata.table("annotations"),
        node_selector=spec.table("nodeSelector"),
        service_account=spec.text("serviceAccountName", "") or "default",
        uses_node_network=spec.flag("hostNetwork"),
        hostname=spec.text("hostname", ""),
        restart_policy=_restart_policy(spec),
        grace_seconds=spec.number("terminationGracePeriodSeconds", 30),
        group_of_files=security.optional_number("fsGroup") if security else None,
        more_groups=security.numbers("supplementalGroups") if security else (),
    )
    if not found.containers:
        raise spec.wrong("containers", "a pod has at least one")
    names_are_unique(spec, "containers", [each.name for each in (*found.init_containers, *found.containers)])
    _mounts_exist(spec, (*found.init_containers, *found.containers), found.volumes)
    return found


def _restart_policy(spec: Fields) -> RestartPolicy:
    value = spec.text("restartPolicy", RestartPolicy.ALWAYS.value)
    try:
        return RestartPolicy(value)
    except ValueError:
        raise spec.wrong("restartPolicy", f"{value!r} is none of Always, OnFailure, Never") from None


def _mounts_exist(spec: Fields, found: tuple[Container, ...], known: tuple[Volume, ...]) -> None:
    names = {volume.name for volume in known}
    for container in found:
        for mount in container.mounts:
            if mount.volume not in names:
                why = f"container {container.name} mounts {mount.volume!r}, which is not among them"
                raise spec.wrong("volumes", why)
