"""Facts of one bootstrap.ign: the config, the tunnel's scripts and manifests, its state and shape; and `rule`, which
builds a check from a search for faults and its needs.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from umbilical.bootstrap.names import BOOTKUBE, INLINE, NATIVE, OWN, TunnelNames
from umbilical.bootstrap.patch.config_facts import ClusterFacts, TunnelState, cluster_facts, tunnel_state_of
from umbilical.bootstrap.spec import Mode, Shape
from umbilical.bootstrap.verify.documents import ParsedYaml, PodSpec, dig, parse_yaml
from umbilical.bootstrap.verify.shell_script import Script
from umbilical.checks.check import Check, fault_check
from umbilical.fault import IgnitionError
from umbilical.ignition.config import Config, File, read_config
from umbilical.ignition.data_url import is_data_url

KUBE_SYSTEM: Final = "kube-system"
# Number of the four signs of the seed shape that must hold: a single mistake must not change the shape.
SIGNS_OF_SEED: Final = 3
_NAMES: Final = {TunnelState.PATCHED: OWN, TunnelState.INLINE: INLINE}


@dataclass(frozen=True)
class BootstrapFacts:
    """`shape`, `mode` and `platform` come from the content if not given."""

    content: bytes
    platform: str | None = None
    shape: Shape | None = None
    mode: Mode | None = None
    expected_state: TunnelState | None = None
    """Another state is a failure of check X1."""
    bash_syntax: Callable[[bytes], str | None] | None = None
    """Runs `bash -n` on a script and returns its complaint."""
    now: float | None = None
    """Seconds since 1970, for the expiry clock."""

    @cached_property
    def _read(self) -> tuple[Config | None, str]:
        try:
            return read_config(self.content), ""
        except IgnitionError as fault:
            return None, fault.why

    @property
    def config(self) -> Config | None:
        return self._read[0]

    @property
    def config_fault(self) -> str:
        return self._read[1]

    @cached_property
    def contents(self) -> dict[int, bytes | IgnitionError]:
        """The decoded content of every embedded file, or the error; by index."""
        files = self.config.files if self.config else ()
        return {index: _content(file) for index, file in enumerate(files) if is_data_url(file.source or "")}

    @cached_property
    def found_state(self) -> TunnelState:
        return tunnel_state_of(self.config) if self.config else TunnelState.NONE

    @property
    def has_tunnel(self) -> bool:
        return self.found_state in (TunnelState.NATIVE_ON, TunnelState.PATCHED, TunnelState.INLINE)

    @property
    def is_inline(self) -> bool:
        return self.found_state is TunnelState.INLINE

    @property
    def names(self) -> TunnelNames:
        return _NAMES.get(self.found_state, NATIVE)

    @cached_property
    def cluster(self) -> ClusterFacts:
        return cluster_facts(self.config) if self.config else ClusterFacts()

    @property
    def found_platform(self) -> str | None:
        return self.platform or self.cluster.platform

    def text(self, path: str) -> str | None:
        """Decode a file, or a here-document of an inline tunnel; None if it is missing, unreadable or not unique."""
        files = self.config.files_at(path) if self.config else []
        if not files and self.is_inline:
            return self._here_document(path)
        try:
            return files[0].text() if len(files) == 1 else None
        except IgnitionError:
            return None

    @cached_property
    def bootkube(self) -> Script | None:
        return self._script(BOOTKUBE)

    @cached_property
    def library(self) -> Script | None:
        return self._script(self.names.library)

    @cached_property
    def certificate_script(self) -> Script | None:
        return self._script(self.names.certificate_script)

    @cached_property
    def egress(self) -> ParsedYaml:
        return self._document(self.names.egress)

    @cached_property
    def override(self) -> ParsedYaml:
        return self._document(self.names.override)

    @cached_property
    def server_pod(self) -> ParsedYaml:
        return self._document(self.names.server_pod)

    @cached_property
    def namespace(self) -> ParsedYaml:
        return self._document(self.names.namespace)

    @cached_property
    def agent_secret(self) -> ParsedYaml:
        return self._document(self.names.agent_secret)

    @cached_property
    def agent_daemon_set(self) -> ParsedYaml:
        return self._document(self.names.agent_daemon_set)

    @cached_property
    def server(self) -> PodSpec:
        return PodSpec(dig(self.server_pod.value, "spec"))

    @cached_property
    def agent(self) -> PodSpec:
        return PodSpec(dig(self.agent_daemon_set.value, "spec", "template", "spec"))

    @property
    def agent_namespace(self) -> str | None:
        value = dig(self.agent_daemon_set.value, "metadata", "namespace")
        return value if isinstance(value, str) else None

    @cached_property
    def found_shape(self) -> Shape:
        if self.shape is not None:
            return self.shape
        signs = (
            self.agent_namespace == KUBE_SYSTEM,
            self.agent.spec.get("hostNetwork") is True,
            self.text(self.names.namespace) is None,
            # On OpenShift an SCC assigns the user; the seed shape's namespace is exempt, so the pod names one.
            dig(self.agent.spec, "securityContext", "runAsUser") is not None,
        )
        return Shape.SEED if signs.count(True) >= SIGNS_OF_SEED else Shape.OPENSHIFT

    @cached_property
    def found_mode(self) -> Mode:
        if self.mode is not None:
            return self.mode
        mode = self.server.flags.values.get("--mode")
        return Mode.HTTP_CONNECT if mode == Mode.HTTP_CONNECT.value else Mode.GRPC

    def _here_document(self, path: str) -> str | None:
        commands = self.bootkube.commands if self.bootkube else ()
        found = [
            body
            for command in commands
            if (">", path) in command.redirects
            for operator, body in command.redirects
            if operator == "<<"
        ]
        return found[0] if len(found) == 1 else None

    def _script(self, path: str) -> Script | None:
        text = self.text(path)
        return Script(text) if text is not None else None

    def _document(self, path: str) -> ParsedYaml:
        text = self.text(path)
        return parse_yaml(text) if text is not None else ParsedYaml()


def _content(file: File) -> bytes | IgnitionError:
    try:
        return file.content()
    except IgnitionError as fault:
        return fault


BootstrapCheck = Check[BootstrapFacts]
Need = Callable[[BootstrapFacts], str | None]
"""Returns why a check cannot run, or None."""


def rule(
    identifier: str,
    title: str,
    why: str,
    fix: str,
    search: Callable[[BootstrapFacts], Iterable[str]],
    *needs: Need,
) -> BootstrapCheck:
    """Return a check that passes if `search` finds no fault in a readable config."""
    return fault_check(identifier, title, why, fix, search, readable, *needs)


def readable(facts: BootstrapFacts) -> str | None:
    return None if facts.config is not None else "the file is not an Ignition config, see check S1"


def tunnel(facts: BootstrapFacts) -> str | None:
    if facts.has_tunnel:
        return None
    reasons = {
        TunnelState.NONE: "the file has no tunnel (tunnel state none)",
        TunnelState.NATIVE_OFF: "the installer's own tunnel is switched off (tunnel state native-off)",
    }
    return reasons.get(facts.found_state)


def functions(facts: BootstrapFacts) -> str | None:
    return "an inline tunnel is in bootkube.sh's own steps, without functions and scripts" if facts.is_inline else None


def files(*roles: str) -> Need:
    """Need the files of these roles, which are fields of `TunnelNames`."""

    def need(facts: BootstrapFacts) -> str | None:
        paths = [getattr(facts.names, role) for role in roles]
        missing = [path for path in paths if facts.text(path) is None]
        return f"{missing[0]} is missing or unreadable, see checks F1 to F8 (files), S5 (data)" if missing else None

    return need


def bootkube(facts: BootstrapFacts) -> str | None:
    return None if facts.bootkube is not None else "bootkube.sh is missing or unreadable, see S7 (scripts), S5 (data)"
