"""Writes what the Helm chart in deploy/helm gets from elsewhere: alerts, dashboard, and its renderings by helm.

`make chart` writes them. Tests compare the generated files with the Python objects, and the digest in each rendering
with the chart's inputs, so neither can be stale; `make soak` renders again and compares every byte.
"""

import hashlib
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import peers
from umbilical.hosted.objects import alerts, dashboard
from umbilical.manifests.tree import yaml_bytes

REPOSITORY: Final = Path(__file__).resolve().parent.parent
HELM_FOLDER: Final = REPOSITORY / "deploy" / "helm"
CHART: Final = HELM_FOLDER / "umbilical"
VALUES: Final = CHART / "ci"
RENDERINGS: Final = HELM_FOLDER / "renderings"
RELEASE: Final = "umbilical"
NAMESPACE: Final = "umbilical"
CLUSTER_VERSION: Final = peers.KUBERNETES_VERSION
"""The version of Kubernetes to render for."""
# The templates replace them by the release's namespace and the number of servers.
NAMESPACE_PLACEHOLDER: Final = "__NAMESPACE__"
SERVERS_PLACEHOLDER: Final = "__SERVERS__"
_GENERATED: Final = "# Written by `make chart` from src/umbilical/hosted/objects/alerts.py.\n"
_TIMEOUT_SECONDS: Final = 120.0


class ChartError(Exception):
    """Helm is missing or failed; contains the three lines for the user."""

    def __init__(self, code: str, what: str, why: str, remedy: str) -> None:
        super().__init__(f"{code} {what}\n  why: {why}\n  next: {remedy}")


def generated() -> dict[Path, str]:
    """Return the chart's files that come from the Python objects."""
    return {CHART / "files" / "alerts.yaml": alerts_text(), CHART / "files" / "dashboard.json": dashboard_text()}


def alerts_text() -> str:
    scope = f'namespace="{NAMESPACE_PLACEHOLDER}"'
    groups = {
        "umbilical-servers": alerts.server_alerts(scope, SERVERS_PLACEHOLDER),
        "umbilical-agents": alerts.agent_alerts(scope),
        "umbilical-certificates": alerts.certificate_alerts(scope),
    }
    return _GENERATED + yaml_bytes({"groups": alerts.rule_groups(groups, {})}).decode()


def dashboard_text() -> str:
    rows = {title: panels for title, panels in dashboard.ROWS.items() if title != dashboard.PROXY_ROW}
    model = dashboard.dashboard_model("umbilical", "Umbilical: tunnel", NAMESPACE_PLACEHOLDER, rows)
    return json.dumps(model, indent=1) + "\n"


def value_files() -> list[Path]:
    return sorted(VALUES.glob("*-values.yaml"))


def rendering_of(values: Path) -> Path:
    return RENDERINGS / f"{values.name.removesuffix('-values.yaml')}.yaml"


def header(values: Path) -> str:
    """Return the first lines of a rendering: what it was made from."""
    return (
        f"# Written by `make chart`: helm template {RELEASE} with {values.relative_to(HELM_FOLDER)}.\n"
        f"# inputs: sha256:{inputs_digest(values)}\n"
    )


def inputs_digest(values: Path, chart: Path = CHART) -> str:
    """Hash everything that the rendering depends on: the chart's files with their names, and the values."""
    digest = hashlib.sha256(f"{CLUSTER_VERSION}\0{peers.HELM_VERSION}\0".encode())
    files = [path for path in chart.rglob("*") if path.is_file() and path.parent.name != VALUES.name]
    for path in [*sorted(files), values]:
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.name if path == values else path.relative_to(chart)}\0{content}\0".encode())
    return digest.hexdigest()


def rendered(values: Path, *more: str, source: Path = CHART) -> str:
    """Render the chart or a package of it. Raises ChartError: helm is missing, or it refused chart or values."""
    version = CLUSTER_VERSION.removeprefix("v")
    options = ["--namespace", NAMESPACE, "--kube-version", version, "--values", str(values), *more]
    return header(values) + helm("template", RELEASE, str(source), *options)


def helm(*arguments: str) -> str:
    """Run helm from the cache and return its output. Raises ChartError: it is missing, or it failed."""
    program = peers.binary("helm")
    if program is None:
        why = "helm is not in the cache; nothing else may write renderings"
        raise ChartError("UMB938", "the chart was not rendered", why, "make peers GROUP=helm")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=_TIMEOUT_SECONDS)
    if done.returncode != 0:
        why = " ".join(done.stderr.split()) or f"helm exited with {done.returncode}"
        remedy = f"helm lint --strict {CHART.relative_to(REPOSITORY)}"
        raise ChartError("UMB938", f"helm {arguments[0]} failed", why, remedy)
    return done.stdout


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
        print(path.relative_to(REPOSITORY))


def main(arguments: Sequence[str] = ()) -> int:
    """Write everything; with `--generated` only what needs no helm."""
    for path, text in generated().items():
        _write(path, text)
    if "--generated" in arguments:
        return 0
    try:
        for values in value_files():
            _write(rendering_of(values), rendered(values))
    except ChartError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
