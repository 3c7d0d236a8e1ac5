"""Property tests of verify: what patch makes always passes, and a change of anything that a check reads is caught.

Every leaf of every manifest, every flag, every field of a file's entry and every line that the tunnel adds is changed
in turn. What no check reads is listed here by name, with the reason.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.bootstrap_corpus import CORPUS, Case
from tests.support.tunnel_specs import fitting, tunnel_specs
from tests.support.verify_subjects import Subject, container, failures, is_caught, subject

from umbilical.bootstrap.patch.patch import patch
from umbilical.bootstrap.spec import TunnelSpec
from umbilical.bootstrap.verify.catalogue import CATALOGUE, verify
from umbilical.bootstrap.verify.facts import BootstrapFacts
from umbilical.bootstrap.verify.files import ROLES
from umbilical.ignition.document import IgnitionDocument

Path = tuple[str | int, ...]
NAMES: Final = ("native", "patched", "seed")
MANIFESTS: Final = tuple(role for role in ROLES if role not in ("library", "certificate_script"))
# What no check reads: names that nothing refers to, comfort, and what the kubelet or the programs have defaults for.
UNREAD: Final = re.compile(
    r"""
      server_pod/metadata/.*
    | server_pod/spec/(priorityClassName|automountServiceAccountToken|enableServiceLinks)
    | server_pod/spec/containers/0/(name|imagePullPolicy|terminationMessagePolicy)
    | server_pod/spec/containers/0/(resources|securityContext)/.*
    | server_pod/spec/containers/0/livenessProbe/(initialDelaySeconds|periodSeconds)
    | server_pod/spec/containers/0/livenessProbe/httpGet/scheme
    | server_pod/spec/containers/0/volumeMounts/[0-9]+/readOnly   # of the keys; of the socket it must not be there
    | server_pod/spec/volumes/1/hostPath/type                     # of the keys; that of the socket is read
    | namespace/metadata/(labels/(pod-security|security.openshift).*|annotations/.*)
    | agent_secret/(type|metadata/labels/app)
    | agent_daemon_set/metadata/(name|labels/app)
    | agent_daemon_set/spec/template/spec/(priorityClassName|automountServiceAccountToken|enableServiceLinks)
    | agent_daemon_set/spec/template/spec/terminationGracePeriodSeconds
    | agent_daemon_set/spec/template/spec/securityContext/(runAsUser|runAsGroup|fsGroup)   # one sign of the seed shape
    | agent_daemon_set/spec/template/spec/containers/0/(name|imagePullPolicy|terminationMessagePolicy)
    | agent_daemon_set/spec/template/spec/containers/0/resources/.*
    | agent_daemon_set/spec/template/spec/containers/0/livenessProbe/(initialDelaySeconds|periodSeconds)
    | agent_daemon_set/spec/template/spec/containers/0/securityContext/readOnlyRootFilesystem
    | agent_daemon_set/spec/template/spec/containers/0/volumeMounts/0/readOnly
    | agent_daemon_set/spec/template/spec/volumes/0/secret/defaultMode
    """,
    re.VERBOSE,
)
# Changed, these are caught; left out, something else does instead: another label, the kubelet's default, any kind.
OPTIONAL: Final = re.compile(
    r"""
      agent_daemon_set/spec/selector/matchLabels/.*
    | server_pod/spec/volumes/0/hostPath/type
    | override/(apiVersion|kind)
    """,
    re.VERBOSE,
)
# The installer's pods bear a label that its selector does not ask for.
UNREAD_OF_NATIVE: Final = "agent_daemon_set/spec/template/metadata/labels/openshift.io/bootstrap-only"
UNREAD_FLAGS: Final = frozenset(
    {
        "--logtostderr", "--delete-existing-uds-file", "--keepalive-time", "--frontend-keepalive-time",
        "--probe-interval", "--admin-port", "--sync-interval", "--sync-interval-cap",
    }
)  # fmt: skip
"""Left out, these have defaults that work; set to nonsense, the two intervals and the port are caught."""
SPECIFIC: Final = {"--admin-port": "8091", "--sync-interval": "1h", "--sync-interval-cap": "1s"}


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from leaves(child, (*path, key)) if isinstance(child, dict | list) and child else iter([(*path, key)])


def other(value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return f"{value}x" if isinstance(value, str) else "x"


def changed_at(changed: Subject, role: str, path: Path, *, drop: bool) -> Subject:
    """Change one leaf of a manifest, or leave it out."""

    def change(value: Any) -> None:
        for key in path[:-1]:
            value = value[key]
        if drop:
            del value[path[-1]]
        else:
            value[path[-1]] = other(value[path[-1]])

    return changed.edited(role, change)


def told(role: str, path: Path) -> str:
    return "/".join(map(str, (role, *path)))


def is_read(name: str, role: str, path: Path) -> bool:
    if name == "native" and told(role, path) == UNREAD_OF_NATIVE:
        return False
    return "args" not in path and not UNREAD.fullmatch(told(role, path))


def roles_of(name: str, roles: Iterable[str] = ROLES) -> list[str]:
    """The seed shape's agents live in kube-system, which needs no file."""
    return [role for role in roles if (name, role) != ("seed", "namespace")]


@pytest.mark.parametrize("name", NAMES)
def test_a_manifest_with_a_changed_or_missing_leaf_is_caught(name: str) -> None:
    whole = subject(name)
    read = [
        (role, path)
        for role in roles_of(name, MANIFESTS)
        for path in leaves(whole.value(role))
        if is_read(name, role, path)
    ]
    changed = [at for at in read if not is_caught(changed_at(whole, *at, drop=False).content)]
    needed = [at for at in read if not OPTIONAL.fullmatch(told(*at))]
    missing = [at for at in needed if not is_caught(changed_at(whole, *at, drop=True).content)]
    assert (changed, missing) == ([], [])


@pytest.mark.parametrize("role", ["server_pod", "agent_daemon_set"])
@pytest.mark.parametrize("name", NAMES)
def test_a_flag_that_is_changed_missing_or_doubled_is_caught(name: str, role: str) -> None:
    whole = subject(name)
    for flag in map(str, container(whole.value(role))["args"]):
        key = flag.partition("=")[0]
        forms = [[flag, flag]]
        forms += [[f"{key}={SPECIFIC[key]}"]] if key in SPECIFIC else []
        forms += [[], [f"{flag}9"]] if key not in UNREAD_FLAGS else []
        assert [form for form in forms if not is_caught(with_flag(whole, role, flag, form).content)] == [], flag


def with_flag(changed: Subject, role: str, flag: str, words: list[str]) -> Subject:
    def change(value: Any) -> None:
        args = container(value)["args"]
        index = args.index(flag)
        args[index : index + 1] = words

    return changed.edited(role, change)


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_with_a_changed_field_is_caught(name: str) -> None:
    whole = subject(name)
    entries = {entry["path"]: entry for entry in json.loads(whole.content)["storage"]["files"]}
    for role in roles_of(name):
        fields = {field: other(entries[whole.path(role)][field]) for field in ("mode", "overwrite", "path")}
        fields |= {"user": {"name": "core"}, "contents": {"source": "data:;base64,!"}}
        unseen = [field for field, new in fields.items() if not is_caught(whole.entry(role, **{field: new}).content)]
        assert unseen == [], role


def tunnel_lines(name: str) -> list[int]:
    """Indexes of the lines of bootkube.sh that are there for the tunnel."""
    names = subject(name).names
    functions = (names.setup_function, names.manifests_function, names.cleanup_function)
    marks = (names.library, names.egress, names.override_in_render_container, *functions)
    lines = subject(name).text("bootkube").split("\n")
    return [index for index, line in enumerate(lines) if any(mark in line for mark in marks)]


@pytest.mark.parametrize("name", NAMES)
def test_a_line_of_the_tunnel_that_is_changed_is_caught(name: str) -> None:
    whole = subject(name)
    lines = whole.text("bootkube").split("\n")
    for index in tunnel_lines(name):
        line, before, behind = lines[index], lines[:index], lines[index + 1 :]
        forms = [[], [line, line], [f"# {line}"], [f"false && {line.strip()}"], [f"{line.rstrip(chr(92))}x"]]
        # Inside a continued command that would only be one more word.
        forms += [] if line.strip().startswith("--") else [[f"echo {line}"]]
        scripts = [[*before, *form, *behind] for form in forms]
        scripts += [[line, *before, *behind], [*before, *behind[:-1], line, *behind[-1:]]]
        unseen = [text for text in map("\n".join, scripts) if not is_caught(whole.with_text("bootkube", text).content)]
        assert unseen == [], line


def stage_lines(name: str) -> list[int]:
    """Indexes of the library's lines that the protocol of stages and cleaning up rests on."""
    wanted = re.compile(r"record_service_stage_start|touch konnectivity|oc delete|--wait=false|\(\) \{$|s\|\\\$\{")
    lines = subject(name).text("library").split("\n")
    names = subject(name).names
    kept = (names.setup_function, names.manifests_function, names.cleanup_function)
    return [
        index
        for index, line in enumerate(lines)
        if wanted.search(line) and (not line.endswith("() {") or line.startswith(kept))
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_line_of_the_library_that_is_gone_is_caught(name: str) -> None:
    whole = subject(name)
    lines = whole.text("library").split("\n")
    shorter = [(lines[index], [*lines[:index], *lines[index + 1 :]]) for index in stage_lines(name)]
    unseen = [line for line, rest in shorter if not is_caught(whole.with_text("library", "\n".join(rest)).content)]
    assert unseen == []


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tunnel_specs(), st.sampled_from(CORPUS))
def test_no_spec_gives_a_config_that_verify_rejects(spec: TunnelSpec, case: Case) -> None:
    original = IgnitionDocument(case.content())
    content = patch(original, fitting(spec, original.config)).document.content
    assert failures(content) == set()
    assert failures(content, shape=spec.shape, mode=spec.mode) == set()


_SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.lists(st.integers(), max_size=2)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_config_with_anything_anywhere_gives_findings(data: st.DataObject) -> None:
    value = json.loads(data.draw(st.sampled_from([subject(name).content for name in NAMES])))
    for _ in range(data.draw(st.integers(1, 3))):
        parent, key = value, None
        for _ in range(data.draw(st.integers(1, 6))):
            if not isinstance(parent, dict | list) or not parent:
                break
            holder = parent
            key = data.draw(st.sampled_from(sorted(holder) if isinstance(holder, dict) else range(len(holder))))
            parent = holder[key]
        if key is not None:
            holder[key] = data.draw(_SCALARS | st.just({}) | st.just([]))
    content = json.dumps(value).encode()
    assert len(verify(BootstrapFacts(content, now=0.0))) == len(CATALOGUE)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(NAMES), st.sampled_from([*ROLES, "bootkube"]), st.text(max_size=60), st.integers(0, 4000))
def test_a_tunnel_with_any_text_in_its_files_gives_findings(name: str, role: str, text: str, place: int) -> None:
    whole = subject(name)
    if (name, role) == ("seed", "namespace"):
        role = "egress"
    before = whole.text(role)
    place = min(place, len(before))
    written = (before[:place] + text + before[place:]).encode("utf-8", "replace").decode()
    content = whole.with_text(role, written).content
    assert len(verify(BootstrapFacts(content, now=0.0))) == len(CATALOGUE)


def test_aliases_that_multiply_are_judged_quickly() -> None:
    levels = "".join(f"l{number}: &l{number} [{', '.join([f'*l{number - 1}'] * 9)}]\n" for number in range(1, 30))
    bomb = "l0: &l0 [x]\n" + levels + "spec: *l29\nmetadata: *l29\ndata: *l29\negressSelections: *l29\n"
    for role in MANIFESTS:
        assert is_caught(subject("patched").with_text(role, bomb).content)
