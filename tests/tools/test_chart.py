"""The Helm chart without helm: schema, generated files, and the committed renderings, which must not be stale."""

import copy
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
import jsonschema
import pytest
import yaml
from tests.support import chart_objects
from tests.support.chart_objects import NAMES, Object, Objects, named, pods, rendering

import chart
from umbilical import __version__
from umbilical.cli.main import umbilical
from umbilical.manifests.objects import DEFAULT_IMAGE

EXISTING: Final = {"agents-only": ("konnectivity-agent",)}
"""Secrets that the values of a rendering say exist."""
SCHEMA: Final = json.loads((chart.CHART / "values.schema.json").read_text())
DEFAULTS: Final = yaml.safe_load((chart.CHART / "values.yaml").read_text())
# Maps that users fill with names of their own.
FREE: Final = frozenset({"requests", "dashboardLabels"})


def test_chart_and_application_have_the_version_of_the_package() -> None:
    content = yaml.safe_load((chart.CHART / "Chart.yaml").read_text())
    assert (content["version"], content["appVersion"]) == (__version__, __version__)


@pytest.mark.parametrize("path", chart.generated(), ids=lambda path: path.name)
def test_alerts_and_dashboard_are_those_of_hosted_control_planes(path: Path) -> None:
    assert path.read_text() == chart.generated()[path], "run `make chart`"


def complaints(values: object) -> list[str]:
    """Return the paths of values that the schema refuses."""
    errors = jsonschema.Draft202012Validator(SCHEMA).iter_errors(values)
    return sorted({".".join(map(str, error.absolute_path)) for error in errors})


def test_the_schema_is_valid_and_accepts_the_defaults_and_the_values_of_every_rendering() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    accepted = [DEFAULTS, *(yaml.safe_load(path.read_text()) for path in chart.value_files())]
    assert [complaints(values) for values in accepted] == [[]] * (len(NAMES) + 1)


def test_the_schema_knows_exactly_the_keys_of_the_defaults() -> None:
    def keys(values: Object, prefix: str = "") -> set[str]:
        below = [keys(one, f"{prefix}{key}.") for key, one in values.items() if isinstance(one, dict)]
        names = {f"{prefix}{key}" for key in values if prefix.rstrip(".").rpartition(".")[2] not in FREE}
        return names.union(*below) - {f"{prefix}{key}" for key in FREE}

    def described(schema: Object, prefix: str = "") -> set[str]:
        parts = schema.get("properties", {})
        return {f"{prefix}{key}" for key in parts}.union(
            *(described(one, f"{prefix}{key}.") for key, one in parts.items())
        ) - {f"{prefix}{key}" for key in FREE}

    # Helm passes `global` to a chart that is a dependency of another.
    assert described(SCHEMA) == keys(DEFAULTS) | {"global"}


WRONG: Final = {
    "replica": 3,
    "server.kind": "StatefulSet",
    "server.replicas": 0,
    "server.protocol": "https",
    "server.strategies": [],
    "server.frontend.type": "udp",
    "server.frontend.socketDirectory": "run/umbilical",
    "server.frontend.identities": ["konnectivity-client"],
    "server.agentIdentities": ["default-route=true"],
    "server.publish.type": "Route",
    "server.publish.nodePort": "30091",
    "server.ports.agents": 70000,
    "server.healthHost": "localhost:8092",
    "server.workers": 0,
    "server.gracefulShutdownSeconds": "30s",
    "server.logLevel": "trace",
    "server.extraArgs": ["keepalive 10s"],
    "server.resources.claims": [],
    "agent.kind": "daemonset",
    "agent.servers": ["konnectivity.example.com"],
    "agent.identifiers": "default-route=true host=a",
    "agent.dnsPolicy": "None",
    "agent.tolerations": {},
    "leases.enabled": "true",
    "leases.advertise": "$(NODE_IP)",
    "certificates.mode": "cert-manager",
    "certificates.addresses": ["https://tunnel.example"],
    "certificates.generate.keyType": "ed25519",
    "certificates.generate.schedule": "daily",
    "certificates.generate.lifetimeHours": 87601,
    "certificates.certManager.duration": "90 days",
    "certificates.certManager.issuerRef.kind": "issuer",
    "certificates.secrets.ca": "x",
    "image.digest": "4d3f",
    "image.tag": "a b",
    "image.pullPolicy": "ifnotpresent",
    "podSecurity.user": 0,
    "networkPolicy.agents": [{}],
    "monitoring.interval": 30,
    "monitoring.labels": {"release": 1},
    "test.target": "10.0.0.1",
}


@pytest.mark.parametrize("path", WRONG)
def test_a_wrong_value_or_an_unknown_key_is_refused_at_its_place(path: str) -> None:
    values = copy.deepcopy(DEFAULTS)
    *folders, last = path.split(".")
    place: Any = values
    for folder in folders:
        place = place[folder]
    is_unknown = last not in place
    place[last] = WRONG[path]
    (found,) = complaints(values)
    # An unknown key is a fault of the map that has it.
    assert found == ".".join(folders) if is_unknown else found.startswith(path)


@pytest.mark.parametrize("values", chart.value_files(), ids=lambda path: path.name)
def test_a_rendering_was_made_from_this_chart_and_these_values(values: Path) -> None:
    head = "".join(chart.rendering_of(values).read_text().splitlines(keepends=True)[:2])
    assert head == chart.header(values), "stale: run `make chart`"


def test_every_rendering_has_its_values() -> None:
    assert {path.stem for path in chart.RENDERINGS.iterdir()} == set(NAMES)


def test_a_change_of_any_input_makes_renderings_stale(tmp_path: Path) -> None:
    values = chart.value_files()[0]
    before = chart.inputs_digest(values)
    copied = Path(shutil.copytree(chart.CHART, tmp_path / "umbilical"))
    assert chart.inputs_digest(values, copied) == before
    template = copied / "templates" / "server.yaml"
    template.write_text(template.read_text() + "\n")
    changed = chart.inputs_digest(values, copied)
    template.rename(template.with_name("servers.yaml"))
    assert len({before, changed, chart.inputs_digest(values, copied)}) == 3
    other = chart.value_files()[1]
    assert chart.inputs_digest(other) != before


@pytest.mark.parametrize("name", NAMES)
def test_everything_that_an_object_refers_to_exists(name: str) -> None:
    assert chart_objects.missing(rendering(name), EXISTING.get(name, ())) == []


@pytest.mark.parametrize("name", NAMES)
def test_pods_have_our_security_settings_requests_without_limits_and_tokens_only_by_wish(name: str) -> None:
    assert chart_objects.unsafe(rendering(name)) == []


def without(kind: str, name: str) -> Callable[[Objects], Objects]:
    return lambda found: [one for one in found if (one["kind"], one["metadata"]["name"]) != (kind, name)]


def with_server(**changes: Any) -> Callable[[Objects], Objects]:
    def change(found: Objects) -> Objects:
        pod = named(found, "Deployment")["umbilical-server"]["spec"]["template"]["spec"]
        pod["containers"][0].update(changes)
        return found

    return change


FAULTS: Final = {
    "ServiceAccount umbilical-server": without("ServiceAccount", "umbilical-server"),
    "ConfigMap umbilical-identities": without("ConfigMap", "umbilical-identities"),
    "Secret umbilical-server": lambda found: without("Job", "umbilical-certificates-hook")(
        without("CronJob", "umbilical-certificates")(found)
    ),
    "Role umbilical-certificates": without("Role", "umbilical-certificates"),
    "probe's port metrics": with_server(ports=[{"name": "agents"}, {"name": "clients"}]),
    "port clients": with_server(ports=[{"name": "agents"}, {"name": "metrics"}]),
    "nothing has the labels": without("DaemonSet", "umbilical-agent"),
    "volume keys": with_server(volumeMounts=[{"name": "keys", "mountPath": "/keys"}]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_reference_to_nothing_is_found(fault: str) -> None:
    found = chart_objects.missing(FAULTS[fault](rendering("default")), ())
    assert any(fault in one for one in found), found


@pytest.mark.parametrize(
    "changes",
    [
        {"securityContext": {**chart_objects.DROPPED, "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]}}},
        {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1"}}},
    ],
)
def test_a_container_without_our_settings_is_found(changes: Object) -> None:
    assert chart_objects.unsafe(with_server(**changes)(rendering("default")))


@pytest.mark.parametrize("name", NAMES)
def test_every_container_runs_a_command_of_ours_with_options_that_it_has(name: str) -> None:
    found = list(pods(rendering(name)))
    assert found
    for _, _, pod in found:
        for box in pod["containers"]:
            assert (box["image"], box["command"]) == (DEFAULT_IMAGE, ["/usr/bin/umbilical"])
            parse([expanded(word, {str(one["name"]) for one in box.get("env", ())}) for word in box["args"]])


def expanded(word: str, variables: set[str]) -> str:
    """Replace variables as the kubelet does, which adds those of the API's own Service."""
    known = dict.fromkeys(variables, "10.0.0.9")
    known |= {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    return re.sub(r"\$\((\w+)\)", lambda match: known[match[1]], word)


def parse(arguments: list[str]) -> None:
    """Raises click.ClickException: an option is unknown, missing, or has a wrong value."""
    command: click.Command = umbilical
    while isinstance(command, click.Group):
        word, *arguments = arguments
        found = command.get_command(click.Context(command), word)
        assert found is not None, word
        command = found
    command.make_context("umbilical", arguments)


def test_an_option_that_a_command_does_not_have_is_found() -> None:
    with pytest.raises(click.NoSuchOption):
        parse(["agent", "run", "--ca=/x", "--sync-for-ever"])


@pytest.mark.parametrize("name", NAMES)
def test_every_object_is_in_the_release_s_namespace_and_has_its_labels(name: str) -> None:
    for one in rendering(name):
        head = one["metadata"]
        assert head["namespace"] == chart.NAMESPACE
        assert head["labels"]["app.kubernetes.io/instance"] == chart.RELEASE, head["name"]
        assert head["labels"]["helm.sh/chart"] == f"umbilical-{__version__}"


def test_the_pod_of_helm_test_stays_because_helm_reads_its_log_after_it_has_passed() -> None:
    for name in NAMES:
        for pod in named(rendering(name), "Pod").values():
            assert pod["metadata"]["annotations"]["helm.sh/hook-delete-policy"] == "before-hook-creation"
    assert (
        "helm test {{ .Release.Name }} -n {{ $namespace }} --logs" in (chart.CHART / "templates/NOTES.txt").read_text()
    )


def test_a_lease_belongs_to_the_pod_of_its_server() -> None:
    with_leases = [name for name in NAMES if "umbilical-server-leases" in named(rendering(name), "Role")]
    assert with_leases
    for name in with_leases:
        for title, _, pod in pods(rendering(name)):
            if title.endswith(" umbilical-server"):
                (box,) = pod["containers"]
                assert "--lease-owner=$(POD_NAME)/$(POD_UID)" in box["args"]
                fields = {one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"] for one in box["env"]}
                assert (fields["POD_NAME"], fields["POD_UID"]) == ("metadata.name", "metadata.uid")


def expressions(name: str) -> dict[str, str]:
    (rule,) = named(rendering(name), "PrometheusRule").values()
    return {one["alert"]: one["expr"] for group in rule["spec"]["groups"] for one in group["rules"]}


def test_alerts_are_limited_to_the_namespace_and_to_programs_whose_metrics_are_read() -> None:
    both, servers = expressions("high-availability"), expressions("cert-manager")
    assert {"UmbilicalAgentDisconnected", "UmbilicalServersMissing"} <= set(both)
    assert "UmbilicalServersMissing" in servers
    assert "UmbilicalAgentDisconnected" not in servers
    assert all('namespace="umbilical"' in text and "__" not in text for text in [*both.values(), *servers.values()])
    assert both["UmbilicalServersMissing"].endswith("< 3")
    (rule,) = named(rendering("high-availability"), "PrometheusRule").values()
    labels = [one["labels"] for group in rule["spec"]["groups"] for one in group["rules"]]
    assert all(one["team"] == "platform" and one["severity"] in ("critical", "warning") for one in labels)


def test_the_dashboard_opens_with_the_release_s_namespace() -> None:
    model = json.loads(
        named(rendering("high-availability"), "ConfigMap")["umbilical-dashboard"]["data"]["umbilical.json"]
    )
    assert model["templating"]["list"][1]["current"]["value"] == "umbilical"
    assert "Proxies" not in [panel["title"] for panel in model["panels"]]


def test_only_the_certificates_job_may_touch_secrets_and_only_its_own() -> None:
    for name in NAMES:
        for role, content in named(rendering(name), "Role").items():
            for rule in content["rules"]:
                if "secrets" in rule["resources"]:
                    assert role.startswith("umbilical-certificates")
                    assert rule["verbs"] == ["create"] or len(rule["resourceNames"]) == 4
