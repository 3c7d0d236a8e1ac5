"""Changes to applied objects for tests: which file holds one, and what becomes of it."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import yaml
from tests.support.hardway_lint import Sample, Subject

from umbilical.hardway.artifacts import layout

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def _files(seen: Subject, name: str) -> Iterator[tuple[str, list[Any]]]:
    """Files that may hold an object of this name, as documents."""
    for path in sorted(seen.assets):
        content = seen.assets[path].content
        if path.startswith(f"{layout.MANIFESTS}/") and name.encode() in content:
            yield path, list(yaml.load_all(content, _Loader))


def _write(seen: Subject, path: str, documents: Iterable[Any]) -> None:
    seen.write(path, yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False).encode())


def edited(kind: str, name: str, change: Callable[[Any], object], group: str = "") -> Sample:
    """Change one object; where two groups have it, the one of `group`."""

    def sample(seen: Subject) -> None:
        done = []
        for path, documents in _files(seen, name):
            for one in documents:
                if (one["kind"], one["metadata"]["name"]) == (kind, name) and one["apiVersion"].startswith(group):
                    change(one)
                    done.append(path)
            if path in done:
                _write(seen, path, documents)
        assert done, f"no {kind} {name} is applied"

    return sample


def dropped(kind: str, name: str, namespace: str = "") -> Sample:
    """Leave one object out."""

    def sample(seen: Subject) -> None:
        def is_it(one: Any) -> bool:
            head = one["metadata"]
            return (one["kind"], head["name"], head.get("namespace", "")) == (kind, name, namespace)

        for path, documents in _files(seen, name):
            left = [one for one in documents if not is_it(one)]
            if len(left) == len(documents):
                continue
            if left:
                _write(seen, path, left)
            else:
                seen.remove(path)
            return
        raise AssertionError(f"no {kind} {namespace}/{name} is applied")

    return sample


def added(file: str, *objects: dict[str, Any]) -> Sample:
    """Apply something more."""
    return lambda seen: _write(seen, f"{layout.MANIFESTS}/{file}", objects)


def moved(old: str, new: str) -> Sample:
    """Give a file another name, and with it another place in the order."""

    def sample(seen: Subject) -> None:
        seen.write(f"{layout.MANIFESTS}/{new}", seen.assets[f"{layout.MANIFESTS}/{old}"].content)
        seen.remove(f"{layout.MANIFESTS}/{old}")

    return sample
