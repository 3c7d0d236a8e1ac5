"""A pod as typed values: of a manifest's fields, those that the process runner obeys."""

from dataclasses import dataclass, field
from enum import Enum


@dataclass(frozen=True)
class HttpGet:
    port: int | str
    path: str = "/"
    host: str | None = None
    """None: the pod's own address."""
    is_tls: bool = False
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class TcpSocket:
    port: int | str
    host: str | None = None


@dataclass(frozen=True)
class Execute:
    command: tuple[str, ...]


@dataclass(frozen=True)
class Probe:
    """Defaults are the API's own."""

    action: HttpGet | TcpSocket | Execute
    initial_delay_seconds: int = 0
    period_seconds: int = 10
    timeout_seconds: int = 1
    success_threshold: int = 1
    failure_threshold: int = 3


@dataclass(frozen=True)
class Mount:
    volume: str
    path: str
    is_read_only: bool = False
    sub_path: str = ""


@dataclass(frozen=True)
class Security:
    """Of one container, what its pod says included."""

    user: int | None = None
    """None: the image's."""
    group: int | None = None
    refuses_root: bool = False
    root_is_read_only: bool = False
    may_gain_privileges: bool = True
    is_privileged: bool = False
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


class Kind(Enum):
    SECRET = "Secret"
    CONFIG_MAP = "ConfigMap"


@dataclass(frozen=True)
class KeyOf:
    """One value of a Secret or ConfigMap."""

    kind: Kind
    name: str
    key: str
    is_optional: bool = False


@dataclass(frozen=True)
class FieldOf:
    """A field of the pod itself, like `status.podIP`."""

    path: str


@dataclass(frozen=True)
class Variable:
    name: str
    value: str | KeyOf | FieldOf


@dataclass(frozen=True)
class AllOf:
    """Every value of a Secret or ConfigMap as variables."""

    kind: Kind
    name: str
    prefix: str = ""
    is_optional: bool = False


@dataclass(frozen=True)
class Container:
    name: str
    image: str
    command: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    working_directory: str = "/"
    variables: tuple[Variable, ...] = ()
    variables_from: tuple[AllOf, ...] = ()
    ports: tuple[tuple[str, int], ...] = ()
    """Named ones, for probes."""
    mounts: tuple[Mount, ...] = ()
    security: Security = Security()
    liveness: Probe | None = None
    readiness: Probe | None = None
    startup: Probe | None = None
    log_ends_message: bool = False
    """terminationMessagePolicy FallbackToLogsOnError."""


class PathType(Enum):
    """Of a hostPath."""

    ANY = ""
    DIRECTORY = "Directory"
    DIRECTORY_OR_CREATE = "DirectoryOrCreate"
    FILE = "File"
    FILE_OR_CREATE = "FileOrCreate"
    SOCKET = "Socket"
    CHARACTER_DEVICE = "CharDevice"
    BLOCK_DEVICE = "BlockDevice"


@dataclass(frozen=True)
class HostPath:
    path: str
    type: PathType = PathType.ANY


@dataclass(frozen=True)
class EmptyDirectory:
    is_in_memory: bool = False


@dataclass(frozen=True)
class Item:
    """A key of a Secret or ConfigMap under another path, or with another mode."""

    key: str
    path: str
    mode: int | None = None


@dataclass(frozen=True)
class KeysOf:
    """Files out of a Secret or ConfigMap; without items, all of them."""

    kind: Kind
    name: str
    items: tuple[Item, ...] = ()
    is_optional: bool = False


@dataclass(frozen=True)
class FieldFile:
    field: FieldOf
    path: str
    mode: int | None = None


@dataclass(frozen=True)
class Token:
    """A token of the pod's service account."""

    path: str
    audience: str = ""
    lifetime_seconds: int = 3600


@dataclass(frozen=True)
class Payload:
    """Files that are written for the pod: a secret, configMap, downwardAPI or projected volume."""

    sources: tuple[KeysOf | FieldFile | Token, ...]
    mode: int = 0o644


@dataclass(frozen=True)
class Volume:
    name: str
    content: HostPath | EmptyDirectory | Payload


class RestartPolicy(Enum):
    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"


@dataclass(frozen=True)
class Pod:
    name: str
    namespace: str
    uid: str
    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    node_selector: dict[str, str] = field(default_factory=dict)
    service_account: str = "default"
    uses_node_network: bool = False
    hostname: str = ""
    restart_policy: RestartPolicy = RestartPolicy.ALWAYS
    grace_seconds: int = 30
    group_of_files: int | None = None
    """fsGroup."""
    more_groups: tuple[int, ...] = ()

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}"
