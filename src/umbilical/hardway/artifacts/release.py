"""Reads an extracted release, and gives the commands that extract one.

The kubernetes profile has no release: a repository and a tag name one image for each program.
"""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from umbilical.fault import RenderError
from umbilical.hardway.artifacts import crds
from umbilical.hardway.artifacts.inputs import TUNNEL_IMAGE, ReleasePayload
from umbilical.hardway.config.cluster import ReleaseSource
from umbilical.hardway.explain.entry import Topic, TopicKind
from umbilical.manifests.objects import DEFAULT_IMAGE

IMAGE_REFERENCES: Final = "image-references"
METADATA: Final = "release-metadata"
INFO: Final = "release.json"
"""The output of `oc adm release info -o json`. The extracted files do not contain the release's digest."""
NEEDED: Final = (
    *("etcd", "hyperkube", "kube-proxy", "pod", "machine-config-operator", "cluster-config-api", "cluster-bootstrap"),
    *("cli", "cluster-etcd-operator", "cluster-kube-apiserver-operator", "cluster-kube-controller-manager-operator"),
    *("cluster-kube-scheduler-operator", "cluster-config-operator", "cluster-authentication-operator"),
    *("cluster-ingress-operator", "cluster-network-operator", "cluster-version-operator", "cluster-policy-controller"),
    *("baremetal-runtimecfg", "keepalived-ipfailover", "coredns", "haproxy-router", "kube-rbac-proxy", "oauth-proxy"),
    *("rhel-coreos", "rhel-coreos-extensions"),
)
"""Tags that rendering needs. There is no tag kube-apiserver: the program is in hyperkube."""
PROGRAMS: Final = (
    *("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "coredns"),
    TUNNEL_IMAGE,
)
"""Programs of the kubernetes profile, one image each."""
BY_DIGEST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]*@sha256:[0-9a-f]{64}")
_VERSION: Final = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(?:[-+][0-9A-Za-z.+-]+)?")


@dataclass(frozen=True)
class ReleaseCommand:
    title: str
    arguments: tuple[str, ...]
    output: str = ""
    """File for its standard output."""

    @property
    def line(self) -> str:
        """The command as typed in a shell."""
        typed = shlex.join(self.arguments)
        return f"{typed} > {shlex.quote(self.output)}" if self.output else typed


def release_commands(image: str, pull_secret: str, directory: str) -> tuple[ReleaseCommand, ...]:
    """List the commands that fill a directory for `read_release`."""
    access = ("--registry-config", pull_secret)
    info = ("oc", "adm", "release", "info", image, *access, "-o", "json")
    extract = ("oc", "adm", "release", "extract", image, *access, f"--to={directory}")
    return (
        ReleaseCommand("get the digest of the release", info, f"{directory}/{INFO}"),
        ReleaseCommand("extract the manifests of the release", extract),
    )


def read_release(files: Mapping[str, bytes], source: ReleaseSource | None = None) -> ReleasePayload:
    """Read an extracted release from file name -> content. `source` is the release that the configuration names.

    Raises RenderError: UMB715 (not a release, or another version), UMB716 (an image is missing or has no digest).
    """
    source = source or ReleaseSource()
    version = _version(files)
    if source.version and source.version != version:
        why = f"release.version in cluster.yaml is {source.version}"
        raise _no_release(f"the extracted release has version {version}", why)
    images = _images(files)
    manifests = {name: content for name, content in files.items() if not crds.holds_crd(content)}
    definitions = {name: content for name, content in files.items() if name not in manifests}
    return ReleasePayload(version, _image(files, source.image), images, manifests, definitions)


def upstream_payload(source: ReleaseSource) -> ReleasePayload:
    """Return the images of the kubernetes profile."""
    images = {program: f"{source.repository}/{program}:{source.tag}" for program in PROGRAMS}
    if source.tunnel_archive:
        images[TUNNEL_IMAGE] = DEFAULT_IMAGE
    return ReleasePayload(source.version, "", images)


def _version(files: Mapping[str, bytes]) -> str:
    version = _json(files, METADATA).get("version")
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise _no_release(f"{METADATA} has no version", "its field `version` is not a text like 4.18.0")
    return version


def _images(files: Mapping[str, bytes]) -> dict[str, str]:
    tags = _json(files, IMAGE_REFERENCES).get("spec", {})
    entries = tags.get("tags") if isinstance(tags, dict) else None
    found = dict(_tag(entry) for entry in (entries if isinstance(entries, list) else []))
    missing = [name for name in NEEDED if name not in found]
    if missing:
        raise _no_image(f"the release lacks {len(missing)} images", f"{IMAGE_REFERENCES} has no tag {missing[0]}")
    return {name: found[name] for name in sorted(found)}


def _tag(entry: Any) -> tuple[str, str]:
    origin = entry.get("from") if isinstance(entry, dict) else None
    name = entry.get("name") if isinstance(entry, dict) else None
    image = origin.get("name") if isinstance(origin, dict) else None
    if not isinstance(name, str) or not isinstance(image, str):
        raise _no_release(f"{IMAGE_REFERENCES} was not read", "an entry of spec.tags has no name or no from.name")
    if not BY_DIGEST.fullmatch(image):
        raise _no_image(f"the image {name} has no digest", f"{image} does not end in @sha256: and 64 digits")
    return name, image


def _image(files: Mapping[str, bytes], wanted: str) -> str:
    if BY_DIGEST.fullmatch(wanted):
        return wanted
    if INFO not in files:
        why = f"release.image in cluster.yaml is {wanted or 'not set'}, and there is no {INFO} beside the manifests"
        raise _no_image("the digest of the release is unknown", why)
    info = _json(files, INFO)
    repository = (wanted or str(info.get("image", ""))).partition("@")[0]
    head, colon, tag = repository.rpartition(":")
    image = f"{head if colon and '/' not in tag else repository}@{info.get('digest')}"
    if not BY_DIGEST.fullmatch(image):
        raise _no_image("the digest of the release is unknown", f"{INFO} gives {image}")
    return image


def _json(files: Mapping[str, bytes], name: str) -> dict[str, Any]:
    if name not in files:
        raise _no_release("the directory does not contain an extracted release", f"there is no {name}")
    try:
        value = json.loads(files[name])
    except (ValueError, RecursionError) as error:
        raise _no_release(f"{name} was not read", f"it is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise _no_release(f"{name} was not read", "it is not a JSON object")
    return value


def _no_release(what: str, why: str) -> RenderError:
    return RenderError("UMB715", what, why, "oc adm release extract IMAGE --to=DIRECTORY; umbilical explain 04")


def _no_image(what: str, why: str) -> RenderError:
    remedy = f"set release.image with a digest, or oc adm release info IMAGE -o json > DIRECTORY/{INFO}"
    return RenderError("UMB716", what, why, remedy)


TOPICS: Final = (
    Topic(
        TopicKind.FILE,
        IMAGE_REFERENCES,
        4,
        "The ImageStream of a release: one tag for each component, with the image's digest.",
        "The renderers of static pods, and both machine-config commands.",
        "The machine-config operator exits at once, and static pods have images that cannot be pulled.",
        f"jq -r '.spec.tags[] | select(.name==\"etcd\").from.name' {IMAGE_REFERENCES}",
        "Runs the release image: podman run IMAGE image etcd.",
    ),
    Topic(
        TopicKind.FILE,
        METADATA,
        4,
        "The version of a release.",
        "Stage 04; the version goes into the FeatureGate's status and into --payload-version.",
        "The FeatureGate's status has no version, and operators wait for an entry with theirs.",
        f"jq -r .version {METADATA}",
        "Compiled into openshift-install, together with the release image's name.",
    ),
    Topic(
        TopicKind.FILE,
        INFO,
        4,
        "The registry's information about the release image, with its digest.",
        "Stage 04, if cluster.yaml names the release image by tag.",
        "The version operator would get a tag and report another image than the one it runs.",
        f"jq -r .digest {INFO}",
        "openshift-install contains the digest of its release image.",
    ),
)
