"""A pod as typed values: the fields of a manifest that the process runner supports."""

from dataclasses import dataclass, field
from enum import Enum


@dataclass(frozen=True)
class HttpGet:
    port: int | str
    path: str = "/"
    host: str | None = None
    """None: the pod's address."""
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
class PodProbe:
    """Defaults are the API's."""

    action: HttpGet | TcpSocket | Execute
    initial_delay_seconds: int = 0
    period_seconds: int = 10
    timeout_seconds: int = 1
    success_threshold: int = 1
    failure_threshold: int = 3


@dataclass(frozen=True)
class VolumeMount:
    volume: str
    path: str
    is_read_only: bool = False
    sub_path: str = ""


@dataclass(frozen=True)
class Security:
    """Security context of a container, merged with its pod's."""

    user: int | None = None
    """None: the image's user."""
    group: int | None = None
    refuses_root: bool = False
    root_is_read_only: bool = False
    may_gain_privileges: bool = True
    is_privileged: bool = False
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


class SourceKind(Enum):
    SECRET = "Secret"
    CONFIG_MAP = "ConfigMap"


@dataclass(frozen=True)
class KeyOf:
    """One value of a Secret or ConfigMap."""

    kind: SourceKind
    name: str
    key: str
    is_optional: bool = False


@dataclass(frozen=True)
class FieldOf:
    """A field of the pod, like `status.podIP`."""

    path: str


@dataclass(frozen=True)
class EnvironmentVariable:
    name: str
    value: str | KeyOf | FieldOf


@dataclass(frozen=True)
class AllOf:
    """All values of a Secret or ConfigMap as variables."""

    kind: SourceKind
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
    variables: tuple[EnvironmentVariable, ...] = ()
    variables_from: tuple[AllOf, ...] = ()
    ports: tuple[tuple[str, int], ...] = ()
    """Named ports, for probes."""
    mounts: tuple[VolumeMount, ...] = ()
    security: Security = Security()
    liveness: PodProbe | None = None
    readiness: PodProbe | None = None
    startup: PodProbe | None = None
    log_ends_message: bool = False
    """terminationMessagePolicy FallbackToLogsOnError."""


class PathType(Enum):
    """Type of a hostPath."""

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
    """A key of a Secret or ConfigMap with its path and mode."""

    key: str
    path: str
    mode: int | None = None


@dataclass(frozen=True)
class KeysOf:
    """Keys of a Secret or ConfigMap as files; without items, all keys."""

    kind: SourceKind
    name: str
    items: tuple[Item, ...] = ()
    is_optional: bool = False


@dataclass(frozen=True)
class FieldFile:
    field: FieldOf
    path: str
    mode: int | None = None


@dataclass(frozen=True)
class ServiceAccountToken:
    """A token of the pod's service account."""

    path: str
    audience: str = ""
    lifetime_seconds: int = 3600


@dataclass(frozen=True)
class ProjectedFiles:
    """A secret, configMap, downwardAPI or projected volume."""

    sources: tuple[KeysOf | FieldFile | ServiceAccountToken, ...]
    mode: int = 0o644


@dataclass(frozen=True)
class Volume:
    name: str
    content: HostPath | EmptyDirectory | ProjectedFiles


class RestartPolicy(Enum):
    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"


@dataclass(frozen=True)
class LabPod:
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
