"""HAProxy on its own configurations: taken, and without a warning."""

import re
from pathlib import PurePosixPath

from umbilical.hardway.artifacts.infrastructure.places import HAPROXY_BOOTSTRAP, HAPROXY_FINAL
from umbilical.hardway.judges.bench import Bench
from umbilical.host.files import write_file


def balancer_faults(bench: Bench) -> list[str]:
    return [fault for path in (HAPROXY_BOOTSTRAP, HAPROXY_FINAL) for fault in _faults(bench, path)]


def _faults(bench: Bench, path: str) -> list[str]:
    place = bench.file(path)
    # The host's own copies may not be there yet, or be old.
    text = re.sub(r"(?<=ca-file )\S+", lambda match: PurePosixPath(match[0]).name, bench.facts.text(path))
    write_file(place, text.encode(), overwrite=True)
    said = bench.run("haproxy", "-c", "-C", place.parent, "-f", place.name)
    told = said.stderr.decode(errors="replace").splitlines()
    if said.status != 0 and not told:
        told = [f"haproxy -c ended with {said.status}"]
    return [f"{path}: {line.strip()}" for line in told]
