"""Volumes of a manifest: of the host, empty, or written for the pod."""

from collections.abc import Callable, Mapping
from typing import Final

from umbilical.lab.pods.fields import Fields
from umbilical.lab.pods.spec import (
    EmptyDirectory,
    FieldFile,
    FieldOf,
    HostPath,
    Item,
    KeysOf,
    Kind,
    PathType,
    Payload,
    Token,
    Volume,
)

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
    raise fields.wrong(name, f"the process runner knows volumes of {', '.join(_READERS)}")


def _host_path(fields: Fields) -> HostPath:
    path = fields.text("path")
    if not path.startswith("/") or ".." in path.split("/"):
        raise fields.wrong("path", f"{path!r} is no absolute path")
    kind = fields.text("type", "")
    try:
        return HostPath(path, PathType(kind))
    except ValueError:
        raise fields.wrong("type", f"{kind!r} is no type of a host path") from None


def _empty_directory(fields: Fields) -> EmptyDirectory:
    return EmptyDirectory(is_in_memory=fields.text("medium", "") == "Memory")


def _secret(fields: Fields) -> Payload:
    source = KeysOf(Kind.SECRET, fields.name("secretName"), _items(fields), fields.flag("optional"))
    return Payload((source,), _mode(fields, "defaultMode"))


def _config_map(fields: Fields) -> Payload:
    return Payload((_keys(Kind.CONFIG_MAP, fields),), _mode(fields, "defaultMode"))


def _downward(fields: Fields) -> Payload:
    return Payload(_field_files(fields), _mode(fields, "defaultMode"))


def _projected(fields: Fields) -> Payload:
    sources: list[KeysOf | FieldFile | Token] = []
    for each in fields.children("sources"):
        if (part := each.child("secret")) is not None:
            sources.append(_keys(Kind.SECRET, part))
        elif (part := each.child("configMap")) is not None:
            sources.append(_keys(Kind.CONFIG_MAP, part))
        elif (part := each.child("downwardAPI")) is not None:
            sources += _field_files(part)
        elif (part := each.child("serviceAccountToken")) is not None:
            lifetime = part.number("expirationSeconds", 3600, 600)
            sources.append(Token(_inner_path(part), part.text("audience", ""), lifetime))
        else:
            raise fields.wrong(
                "sources", "the process runner knows secret, configMap, downwardAPI, serviceAccountToken"
            )
    return Payload(tuple(sources), _mode(fields, "defaultMode"))


def _keys(kind: Kind, fields: Fields) -> KeysOf:
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
        raise fields.wrong("path", f"{path!r} is no path inside the volume")
    return path


def _mode(fields: Fields, key: str) -> int:
    return fields.number(key, DEFAULT_MODE, 0, 0o777)


def _own_mode(fields: Fields) -> int | None:
    return _mode(fields, "mode") if "mode" in fields else None


_READERS: Final[Mapping[str, Callable[[Fields], HostPath | EmptyDirectory | Payload]]] = {
    "hostPath": _host_path,
    "secret": _secret,
    "configMap": _config_map,
    "emptyDir": _empty_directory,
    "downwardAPI": _downward,
    "projected": _projected,
}
