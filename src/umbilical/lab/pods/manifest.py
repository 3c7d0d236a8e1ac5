"""Converts the object of a manifest to a `LabPod` with its containers and volumes.

Fields that the process runner does not support are refused by name; fields without effect here (resources, priorities,
tolerations, seccomp) are ignored.
"""

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from umbilical.fault import PodError
from umbilical.lab.pods.fields import Fields, read_documents, unreadable
from umbilical.lab.pods.spec import (
    AllOf,
    Container,
    EmptyDirectory,
    EnvironmentVariable,
    Execute,
    FieldFile,
    FieldOf,
    HostPath,
    HttpGet,
    Item,
    KeyOf,
    KeysOf,
    LabPod,
    PathType,
    PodProbe,
    ProjectedFiles,
    RestartPolicy,
    Security,
    ServiceAccountToken,
    SourceKind,
    TcpSocket,
    Volume,
    VolumeMount,
)

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def containers(spec: Fields, key: str, pod_security: Fields | None) -> tuple[Container, ...]:
    return tuple(_container(fields, pod_security) for fields in spec.children(key))


def names_are_unique(parent: Fields, key: str, names: Sequence[str]) -> None:
    if len(set(names)) != len(names):
        raise parent.wrong(key, "two of them have the same name")


def _container(fields: Fields, pod_security: Fields | None) -> Container:
    for key in ("restartPolicy", "lifecycle"):
        if key in fields:
            raise fields.wrong(key, "the process runner does not support it")
    return Container(
        name=fields.name("name"),
        image=fields.text("image"),
        command=fields.texts("command"),
        arguments=fields.texts("args"),
        working_directory=_absolute(fields, "workingDir", "/"),
        variables=tuple(_variable(each) for each in fields.children("env")),
        variables_from=tuple(_variables_from(each) for each in fields.children("envFrom")),
        ports=tuple(
            (each.text("name"), _port_number(each, "containerPort"))
            for each in fields.children("ports")
            if "name" in each
        ),
        mounts=_mounts(fields),
        security=_security(pod_security, fields.child("securityContext")),
        liveness=_probe(fields.child("livenessProbe")),
        readiness=_probe(fields.child("readinessProbe")),
        startup=_probe(fields.child("startupProbe")),
        log_ends_message=fields.text("terminationMessagePolicy", "File") == "FallbackToLogsOnError",
    )


def _variable(fields: Fields) -> EnvironmentVariable:
    name = fields.text("name")
    if not name or "=" in name:
        raise fields.wrong("name", f"{name!r} is not a valid variable name")
    source = fields.child("valueFrom")
    return EnvironmentVariable(name, fields.text("value", "") if source is None else _value_from(source))


def _value_from(source: Fields) -> KeyOf | FieldOf:
    for key, kind in (("secretKeyRef", SourceKind.SECRET), ("configMapKeyRef", SourceKind.CONFIG_MAP)):
        if (fields := source.child(key)) is not None:
            return KeyOf(kind, fields.name("name"), fields.text("key"), fields.flag("optional"))
    if (fields := source.child("fieldRef")) is not None:
        return FieldOf(fields.text("fieldPath"))
    raise _unsupported(source, "a value")


def _variables_from(fields: Fields) -> AllOf:
    prefix = fields.text("prefix", "")
    for key, kind in (("secretRef", SourceKind.SECRET), ("configMapRef", SourceKind.CONFIG_MAP)):
        if (source := fields.child(key)) is not None:
            return AllOf(kind, source.name("name"), prefix, source.flag("optional"))
    raise _unsupported(fields, "variables")


def _unsupported(fields: Fields, noun: str) -> PodError:
    return PodError(
        "UMB831",
        f"the pod runner rejected {fields.path}",
        f"the process runner supports {noun} from Secrets, ConfigMaps and the pod's own fields only",
        "write the value into the manifest, or use the real kubelet: umbilical lab up --runner kubelet",
    )


def _mounts(fields: Fields) -> tuple[VolumeMount, ...]:
    found = []
    for each in fields.children("volumeMounts"):
        if "subPathExpr" in each:
            raise each.wrong("subPathExpr", "the process runner does not support it")
        below = each.text("subPath", "")
        if below and (below.startswith("/") or ".." in below.split("/")):
            raise each.wrong("subPath", f"{below!r} leads out of the volume")
        found.append(VolumeMount(each.text("name"), _absolute(each, "mountPath"), each.flag("readOnly"), below))
    names_are_unique(fields, "volumeMounts", [mount.path for mount in found])
    return tuple(found)


def _absolute(fields: Fields, key: str, default: str | None = None) -> str:
    path = fields.text(key, default) or (default or "")
    if not path.startswith("/") or ".." in path.split("/"):
        raise fields.wrong(key, f"{path!r} is not an absolute path")
    # normpath keeps two leading slashes, a POSIX rule.
    return "/" + posixpath.normpath(path).lstrip("/")


def _security(pod: Fields | None, own: Fields | None) -> Security:
    """Merge field by field; the container's value has precedence over the pod's."""
    layers = [fields for fields in (own, pod) if fields is not None]
    user, group = (
        next((fields.optional_number(key) for fields in layers if key in fields), None)
        for key in ("runAsUser", "runAsGroup")
    )
    refuses_root = next((fields.flag("runAsNonRoot") for fields in layers if "runAsNonRoot" in fields), False)
    if own is None:
        return Security(user=user, group=group, refuses_root=refuses_root)
    capabilities = own.child("capabilities")
    return Security(
        user=user,
        group=group,
        refuses_root=refuses_root,
        root_is_read_only=own.flag("readOnlyRootFilesystem"),
        may_gain_privileges=own.flag("allowPrivilegeEscalation", default=True),
        is_privileged=own.flag("privileged"),
        added=capabilities.texts("add") if capabilities else (),
        dropped=capabilities.texts("drop") if capabilities else (),
    )


def _probe(fields: Fields | None) -> PodProbe | None:
    if fields is None:
        return None
    return PodProbe(
        action=_action(fields),
        initial_delay_seconds=fields.number("initialDelaySeconds", 0),
        period_seconds=fields.number("periodSeconds", 10) or 10,
        timeout_seconds=fields.number("timeoutSeconds", 1) or 1,
        success_threshold=fields.number("successThreshold", 1) or 1,
        failure_threshold=fields.number("failureThreshold", 3) or 3,
    )


def _action(fields: Fields) -> HttpGet | TcpSocket | Execute:
    if (action := fields.child("httpGet")) is not None:
        return HttpGet(
            port=_port(action),
            path=_request_path(action),
            host=action.text("host", "") or None,
            is_tls=action.text("scheme", "HTTP").upper() == "HTTPS",
            headers=tuple(_header(each) for each in action.children("httpHeaders")),
        )
    if (action := fields.child("tcpSocket")) is not None:
        return TcpSocket(_port(action), action.text("host", "") or None)
    if (action := fields.child("exec")) is not None:
        return Execute(action.texts("command"))
    raise fields.wrong("httpGet", "the process runner supports httpGet, tcpSocket and exec")


def _request_path(fields: Fields) -> str:
    path = fields.text("path", "/") or "/"
    if not path.isascii() or not path.isprintable() or " " in path:
        raise fields.wrong("path", f"{path!r} is not a valid URL path")
    return path if path.startswith("/") else f"/{path}"


def _header(fields: Fields) -> tuple[str, str]:
    name, value = fields.text("name"), fields.text("value", "")
    if not _TOKEN.fullmatch(name) or not value.isprintable() or not value.isascii():
        raise fields.wrong("name", f"{name!r} with its value is not a valid HTTP header")
    return name, value


def _port(fields: Fields) -> int | str:
    if isinstance(fields.raw("port"), str):
        return fields.text("port")
    return _port_number(fields, "port")


def _port_number(fields: Fields, key: str) -> int:
    number = fields.number(key, 0, 0, 65535)
    if not number:
        raise fields.wrong(key, "must be a port from 1 to 65535")
    return number


DEFAULT_MODE: Final = 0o644


def volumes(spec: Fields) -> tuple[Volume, ...]:
    found = tuple(_volume(fields) for fields in spec.children("volumes"))
    if len({volume.name for volume in found}) != len(found):
        raise spec.wrong("volumes", "two of them have the same name")
    return found


def _volume(fields: Fields) -> Volume:
    name = fields.name("name")
    for key, read in _READERS.items():
        if (source := fields.child(key)) is not None:
            return Volume(name, read(source))
    raise fields.wrong(name, f"the process runner supports the volume types {', '.join(_READERS)}")


def _host_path(fields: Fields) -> HostPath:
    path = fields.text("path")
    if not path.startswith("/") or ".." in path.split("/"):
        raise fields.wrong("path", f"{path!r} is not an absolute path")
    kind = fields.text("type", "")
    try:
        return HostPath(path, PathType(kind))
    except ValueError:
        raise fields.wrong("type", f"{kind!r} is not a hostPath type") from None


def _secret(fields: Fields) -> ProjectedFiles:
    source = KeysOf(SourceKind.SECRET, fields.name("secretName"), _items(fields), fields.flag("optional"))
    return ProjectedFiles((source,), _mode(fields, "defaultMode"))


def _projected(fields: Fields) -> ProjectedFiles:
    sources: list[KeysOf | FieldFile | ServiceAccountToken] = []
    for each in fields.children("sources"):
        if (part := each.child("secret")) is not None:
            sources.append(_keys(SourceKind.SECRET, part))
        elif (part := each.child("configMap")) is not None:
            sources.append(_keys(SourceKind.CONFIG_MAP, part))
        elif (part := each.child("downwardAPI")) is not None:
            sources += _field_files(part)
        elif (part := each.child("serviceAccountToken")) is not None:
            lifetime = part.number("expirationSeconds", 3600, 600)
            sources.append(ServiceAccountToken(_inner_path(part), part.text("audience", ""), lifetime))
        else:
            raise fields.wrong(
                "sources", "the process runner supports secret, configMap, downwardAPI, serviceAccountToken"
            )
    return ProjectedFiles(tuple(sources), _mode(fields, "defaultMode"))


def _keys(kind: SourceKind, fields: Fields) -> KeysOf:
    return KeysOf(kind, fields.name("name"), _items(fields), fields.flag("optional"))


def _items(fields: Fields) -> tuple[Item, ...]:
    return tuple(Item(each.text("key"), _inner_path(each), _own_mode(each)) for each in fields.children("items"))


def _field_files(fields: Fields) -> tuple[FieldFile, ...]:
    found = []
    for each in fields.children("items"):
        source = FieldOf(each.needed("fieldRef").text("fieldPath"))
        found.append(FieldFile(source, _inner_path(each), _own_mode(each)))
    return tuple(found)


def _inner_path(fields: Fields) -> str:
    path = fields.text("path")
    parts = path.split("/")
    if not all(parts) or ".." in parts or "." in parts or parts[0].startswith(".."):
        raise fields.wrong("path", f"{path!r} is not a path inside the volume")
    return path


def _mode(fields: Fields, key: str) -> int:
    return fields.number(key, DEFAULT_MODE, 0, 0o777)


def _own_mode(fields: Fields) -> int | None:
    return _mode(fields, "mode") if "mode" in fields else None


_READERS: Final[Mapping[str, Callable[[Fields], HostPath | EmptyDirectory | ProjectedFiles]]] = {
    "hostPath": _host_path,
    "secret": _secret,
    "configMap": lambda fields: ProjectedFiles((_keys(SourceKind.CONFIG_MAP, fields),), _mode(fields, "defaultMode")),
    "emptyDir": lambda fields: EmptyDirectory(is_in_memory=fields.text("medium", "") == "Memory"),
    "downwardAPI": lambda fields: ProjectedFiles(_field_files(fields), _mode(fields, "defaultMode")),
    "projected": _projected,
}


def read_static_pod(content: bytes, title: str) -> LabPod:
    """Read the pod of a file in a static pod directory. Raises PodError: UMB830 or UMB831."""
    documents = read_documents(content, title)
    if len(documents) != 1:
        raise unreadable(title, f"it holds {len(documents)} objects; a static pod file has one")
    document = documents[0]
    if (document.get("apiVersion"), document.get("kind")) != ("v1", "Pod"):
        raise unreadable(title, "it is not a v1 Pod")
    return pod(document)


def pod(document: dict[str, Any]) -> LabPod:
    """Read a Pod object; the uid is optional. Raises PodError: UMB831."""
    top = Fields(document, "pod")
    return pod_of(top.needed("metadata"), top.needed("spec"))


def pod_of(metadata: Fields, spec: Fields, name: str | None = None) -> LabPod:
    """`name` is for the pod of a template, which has no name."""
    security = spec.child("securityContext")
    found = LabPod(
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
        raise spec.wrong("containers", "a pod needs at least one")
    names_are_unique(spec, "containers", [each.name for each in (*found.init_containers, *found.containers)])
    _mounts_exist(spec, (*found.init_containers, *found.containers), found.volumes)
    return found


def _restart_policy(spec: Fields) -> RestartPolicy:
    value = spec.text("restartPolicy", RestartPolicy.ALWAYS.value)
    try:
        return RestartPolicy(value)
    except ValueError:
        raise spec.wrong("restartPolicy", f"{value!r} is not Always, OnFailure or Never") from None


def _mounts_exist(spec: Fields, found: tuple[Container, ...], known: tuple[Volume, ...]) -> None:
    names = {volume.name for volume in known}
    for container in found:
        for mount in container.mounts:
            if mount.volume not in names:
                why = f"container {container.name} mounts {mount.volume!r}, which is not defined"
                raise spec.wrong("volumes", why)
