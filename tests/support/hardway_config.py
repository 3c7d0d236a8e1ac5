"""Files of clusters for tests: the least that is needed, with changes by path."""

from typing import Any

import yaml

from umbilical.hardway.config.keys import API_VERSION, KIND


def document(profile: str = "openshift", **changes: Any) -> dict[str, Any]:
    """Keys of `changes` are paths with `__` for dots: networks__machine."""
    root: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND, "profile": profile}
    for path, value in changes.items():
        *folders, name = path.split("__")
        place = root
        for folder in folders:
            place = place.setdefault(folder, {})
        place[name] = value
    return root


def content(profile: str = "openshift", **changes: Any) -> bytes:
    return yaml.safe_dump(document(profile, **changes)).encode()
