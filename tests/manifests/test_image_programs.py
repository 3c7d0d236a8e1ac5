"""Containers that run our image name only what is in it: its table of programs, and what the pod mounts."""

import ipaddress
import posixpath
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pytest
import yaml
from tests.architecture.rooms import REPOSITORY
from tests.support import chart_objects, hardway, hardway_everything, hosted_workloads
from tests.support.hosted_certificates import hosted_set
from tests.support.hosted_specs import hosted_spec
from tests.support.image_archives import built, built_archive, read_image

from umbilical import __version__
from umbilical.bootstrap.certificates import Certificates
from umbilical.bootstrap.render import objects as tunnel_objects
from umbilical.bootstrap.render.render import render as render_tunnel
from umbilical.bootstrap.render.render import render_kubernetes
from umbilical.bootstrap.render.trial_webhook import trial_webhook
from umbilical.bootstrap.spec import Shape, for_shape
from umbilical.hardway.artifacts.graph import render as render_hardway
from umbilical.hardway.artifacts.inputs import TUNNEL_IMAGE
from umbilical.hardway.config.cluster import ClusterProfile, Switch
from umbilical.hosted.objects.render import render as render_hosted
from umbilical.hosted.objects.spec import (
    DataPlaneProxy,
    HostedImages,
    HostedSpec,
    KubeApiserver,
    Leases,
    ManagementProxy,
    ServerCount,
    ServerProgram,
    TlsProfile,
    Workload,
)
from umbilical.hosted.objects.spec_reading import EXAMPLE, read_spec
from umbilical.manifests.daemon_pod import PodPlace, daemon_pod
from umbilical.manifests.objects import DEFAULT_IMAGE, IMAGE, IMAGE_PROGRAMS, INTERPRETER, Object
from umbilical.manifests.systemd_units import ServiceUnit, UnitOption
from umbilical.pki.pem import KeyPair

OURS: Final = (DEFAULT_IMAGE, tunnel_objects.IMAGE)
"""Our image, and the placeholder of the bootstrap: a release payload may have ours in upstream's place."""
FILE: Final = re.compile(r"(?:^|[=,])(/(?!/)[^\s=,]+)")


def containers(document: object) -> Iterator[Object]:
    """Every container of our image, at any depth: pods, templates, patches, lists."""
    if isinstance(document, dict):
        if document.get("image") in OURS:
            yield document
        for value in document.values():
            yield from containers(value)
    elif isinstance(document, list):
        for value in document:
            yield from containers(value)


def faults(container: Object) -> list[str]:
    """What a container starts or reads although its image does not have it."""
    started = [program for command in commands(container) for program in command[:1] if not is_in_image(program)]
    mounts = [str(mount["mountPath"]) for mount in container.get("volumeMounts") or ()]
    values = [str(one.get("value", "")) for one in container.get("env") or ()]
    words = [*(container.get("args") or ()), *values, *(word for one in commands(container) for word in one[1:])]
    named = [path for word in words for path in FILE.findall(word) if path not in IMAGE_PROGRAMS]
    return [*started, *(path for path in named if not any(is_below(path, mount) for mount in mounts))]


def commands(container: Object) -> list[list[str]]:
    actions = [*(container.get("lifecycle") or {}).values()]
    actions += [
        container[f"{kind}Probe"] for kind in ("startup", "liveness", "readiness") if f"{kind}Probe" in container
    ]
    executed = [action["exec"]["command"] for action in actions if "exec" in action]
    return [list(container.get("command") or ()), *map(list, executed)]


def is_in_image(program: str) -> bool:
    """The image's PATH has /usr/bin."""
    return (program if "/" in program else f"/usr/bin/{program}") in {*IMAGE_PROGRAMS, INTERPRETER}


def is_below(path: str, directory: str) -> bool:
    return posixpath.commonpath([posixpath.normpath(path), directory]) == posixpath.normpath(directory)


def documents(files: Iterable[tuple[str, bytes]]) -> Iterator[object]:
    for path, content in files:
        if path.endswith((".yaml", ".yml", ".json", ".patch")):
            yield from yaml.safe_load_all(content)


OURS_EVERYWHERE: Final = hosted_spec(images=HostedImages(DEFAULT_IMAGE, DEFAULT_IMAGE, DEFAULT_IMAGE))
PROXIES: Final = {
    "proxy": DataPlaneProxy("http://p.example:1", "https://p.example", trusted_ca="ca"),
    "management_proxy": ManagementProxy("http://p.example:2"),
}
LEASES: Final = {"server_count": ServerCount.LEASES, "leases": Leases("kubeconfig")}
STATIC: Final = KubeApiserver(workload=Workload.STATIC_POD, manifest="pod.yaml")


def hosted(spec: HostedSpec, manifest: Object | None = None) -> Iterator[object]:
    content = None if manifest is None else hosted_workloads.as_bytes(manifest)
    return documents((one.path, one.content) for one in render_hosted(spec, hosted_set(), content))


def tunnel(shape: Shape, image: str | None) -> Iterator[object]:
    spec = for_shape(shape, image=image, node_ip=ipaddress.ip_address("192.0.2.1"))
    if shape is not Shape.KUBERNETES:
        return documents((one.path, one.content) for one in render_tunnel(spec))
    pair = KeyPair(b"certificate", b"key")
    kube_apiserver = hosted_workloads.as_bytes(hosted_workloads.static_pod())
    tree = render_kubernetes(spec, kube_apiserver, Certificates(b"ca", pair, pair))
    return documents((one.path, one.content) for one in tree)


def webhook() -> Iterator[object]:
    tree = trial_webhook(DEFAULT_IMAGE, b"ca", KeyPair(b"certificate", b"key"))
    return documents((one.path, one.content) for one in tree)


def hard_way(profile: ClusterProfile) -> Iterator[object]:
    inputs = hardway_everything.inputs(hardway.cluster(profile, konnectivity=Switch.ON))
    images = {**inputs.payload.images, TUNNEL_IMAGE: DEFAULT_IMAGE}
    tree = render_hardway(replace(inputs, payload=replace(inputs.payload, images=images))).tree
    return documents((one.path, one.content) for one in tree)


def static_pods() -> Iterator[object]:
    files = (UnitOption("--key", "/etc/umbilical/pki/tls.key", is_file=True), UnitOption("--id", "a"))
    for daemon, socket in (("server", "/run/umbilical/server.sock"), ("agent", "")):
        command = ("umbilical", daemon, "run")
        unit = ServiceUnit(f"umbilical-{daemon}", daemon, command, files, stop_seconds=30.0, socket_path=socket)
        tree = daemon_pod(unit, PodPlace(DEFAULT_IMAGE, "", 8092, "node"))
        yield from documents((one.path, one.content) for one in tree)


def files_of_the_repository() -> Iterator[object]:
    """Blocks of the documents, and finished manifests of a chart."""
    for path in sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]):
        for block in re.findall(r"^```ya?ml\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL):
            yield from yaml.safe_load_all(block)
    for path in sorted((REPOSITORY / "deploy").rglob("*.yaml")):
        # Templates are no YAML; their renderings are among the files. Alerts have braces of their own.
        if "templates" not in path.parts:
            yield from yaml.safe_load_all(path.read_text())


RENDERED: Final[Mapping[str, tuple[int, Callable[[], Iterable[object]]]]] = {
    # Least number of containers of our image: a renderer that renders none proves nothing.
    "hosted": (13, lambda: hosted(OURS_EVERYWHERE)),
    "hosted example": (13, lambda: hosted(read_spec(EXAMPLE.encode()))),
    "hosted with proxies and leases": (13, lambda: hosted(OURS_EVERYWHERE.replace(**PROXIES, **LEASES))),
    "hosted, TLS 1.3": (13, lambda: hosted(OURS_EVERYWHERE.replace(tls_profile=TlsProfile.MODERN))),
    "hosted, a Deployment": (13, lambda: hosted(OURS_EVERYWHERE, hosted_workloads.deployment())),
    "hosted, a static pod": (
        13,
        lambda: hosted(OURS_EVERYWHERE.replace(kube_apiserver=STATIC), hosted_workloads.static_pod()),
    ),
    # Their flags and paths are the same; an image of ours under upstream's name is what a mirror may have.
    "hosted, upstream": (13, lambda: hosted(OURS_EVERYWHERE.replace(server=ServerProgram.UPSTREAM))),
    "bootstrap, openshift": (2, lambda: tunnel(Shape.OPENSHIFT, DEFAULT_IMAGE)),
    "bootstrap, image of the payload": (2, lambda: tunnel(Shape.OPENSHIFT, None)),
    "bootstrap, seed": (2, lambda: tunnel(Shape.SEED, DEFAULT_IMAGE)),
    "bootstrap, kubernetes": (2, lambda: tunnel(Shape.KUBERNETES, DEFAULT_IMAGE)),
    **{
        f"chart, {name}": (least, partial(chart_objects.rendering, name))
        for name, least in {"default": 5, "high-availability": 5, "cert-manager": 2, "agents-only": 1}.items()
    },
    "test webhook": (1, webhook),
    "static pods": (2, static_pods),
    "hard way, openshift": (2, lambda: hard_way(ClusterProfile.OPENSHIFT)),
    "hard way, kubernetes": (2, lambda: hard_way(ClusterProfile.KUBERNETES)),
}


@pytest.mark.parametrize("name", RENDERED)
def test_no_manifest_names_a_program_or_a_file_that_our_image_does_not_have(name: str) -> None:
    least, rendered = RENDERED[name]
    found = list(containers(list(rendered())))
    assert len(found) >= least
    assert {str(one["name"]): faults(one) for one in found if faults(one)} == {}


def test_no_document_and_no_chart_names_a_program_or_a_file_that_our_image_does_not_have() -> None:
    found = list(containers(list(files_of_the_repository())))
    assert {str(one["name"]): faults(one) for one in found if faults(one)} == {}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"command": ["/bin/sh", "-c", "proxy-server"]}, ["/bin/sh"]),
        ({"command": ["sh"]}, ["sh"]),
        ({"command": ["/usr/local/bin/proxy-server"]}, ["/usr/local/bin/proxy-server"]),
        ({"lifecycle": {"preStop": {"exec": {"command": ["sleep", "70"]}}}}, ["sleep"]),
        ({"livenessProbe": {"exec": {"command": ["cat", "/tmp/alive"]}}}, ["cat", "/tmp/alive"]),
        ({"args": ["--ca=/etc/keys/ca.crt", "--key=/etc/keys-of-others/key"]}, ["/etc/keys-of-others/key"]),
        ({"env": [{"name": "KUBECONFIG", "value": "/root/config"}]}, ["/root/config"]),
        ({"command": ["proxy-agent"], "args": ["--no-proxy=10.0.0.0/8", "--url=https://a.example/b"]}, []),
        ({"lifecycle": {"preStop": {"sleep": {"seconds": 70}}}, "readinessProbe": {"httpGet": {"path": "/x"}}}, []),
    ],
)
def test_a_program_or_a_file_that_is_missing_is_found(changes: dict[str, Any], told: list[str]) -> None:
    mounts = [{"name": "keys", "mountPath": "/etc/keys"}]
    pod = {"initContainers": [{"name": "a", "image": DEFAULT_IMAGE, "volumeMounts": mounts, **changes}]}
    assert [fault for one in containers([{"spec": pod}]) for fault in faults(one)] == told
    assert list(containers([{"image": "registry.example/other:1", **changes}])) == []


def test_every_program_of_the_image_is_a_command_that_is_installed() -> None:
    scripts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["scripts"]
    assert set(IMAGE_PROGRAMS.values()) == set(scripts)
    assert {f"/usr/bin/{name}" for name in scripts} <= set(IMAGE_PROGRAMS)


@built
def test_the_image_has_every_program_of_the_table() -> None:
    image = read_image(built_archive())
    members = {f"/{member.name}": member for member in image.layer}
    assert [path for path in (*IMAGE_PROGRAMS, INTERPRETER) if path not in members] == []
    links = {path: members[path].linkname for path in IMAGE_PROGRAMS if members[path].issym()}
    assert links == {path: f"usr/bin/{IMAGE_PROGRAMS[path]}" for path in ("/proxy-server", "/proxy-agent")}
    search_path = dict(word.split("=", 1) for word in image.config["config"]["Env"])["PATH"]
    assert "/usr/bin" in search_path.split(":"), "commands without a folder are found there"


def test_the_default_image_is_a_reference_with_the_version() -> None:
    assert IMAGE.fullmatch(DEFAULT_IMAGE)
    assert DEFAULT_IMAGE.endswith(f":{__version__}")
