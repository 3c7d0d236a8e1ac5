"""Errors of all rooms: what failed, why, what to do next, a code of docs/errors.md, and an exit status.

Subclasses exist for callers that catch one of them; `cli` prints all in the same way.
"""


class Fault(Exception):
    """`str()` is the message of three lines, starting with the code."""

    def __init__(self, code: str, what: str, why: str, remedy: str) -> None:
        super().__init__(code, what, why, remedy)
        self.code = code
        self.what = what
        self.why = why
        self.remedy = remedy

    def __str__(self) -> str:
        return self.three_lines

    @property
    def three_lines(self) -> str:
        return f"{self.code} {self.what}\n  why: {self.why}\n  next: {self.remedy}"

    @property
    def brief(self) -> str:
        """One line, for logs."""
        return f"{self.code} {self.what}: {self.why}"

    @property
    def exit_status(self) -> int:
        """Exit status of a command that fails with this code."""
        from umbilical.codes import exit_status

        return exit_status(self.code)


class StartupError(Fault):
    """A server, agent or proxy cannot start."""

    def __str__(self) -> str:
        """Upstream's form for drop-ins and logs: one line without the code."""
        return f"{self.what}: {self.why}"


class HardwayError(Fault):
    """A stage of the hard way failed."""


class StageTimeout(HardwayError):
    """A stage timed out; a retry may help."""

    exit_status = 9


class Unsafe(HardwayError):
    """Refused because it would lose something irrecoverable; nothing was changed."""

    exit_status = 7


class RenderError(Fault):
    """The options contradict each other or the installer's output."""


class LabError(Fault):
    """The lab or its machine does not meet a requirement."""


class PodError(LabError):
    """A pod cannot run, or not yet."""


class PodWaiting(PodError):
    """Something that the pod needs is missing; it is retried. `reason` is the kubelet's word for it."""

    def __init__(self, code: str, what: str, why: str, remedy: str, reason: str) -> None:
        super().__init__(code, what, why, remedy)
        self.reason = reason


class HostedError(Fault):
    """A command for hosted control planes failed."""


class PkiError(Fault):
    """An error of a certificate, its key or its CA."""


class HostError(Fault):
    """A requirement on this machine is not met."""


class ClusterError(Fault):
    """A request to a cluster failed."""


class ApiUnreachable(ClusterError):
    """No HTTP response: connection refused, name not found, TLS failure or timeout."""

    def __init__(self, request: str, why: str) -> None:
        remedy = "check that the API server runs and that the kubeconfig has its address: kubectl cluster-info"
        super().__init__("UMB603", f"{request}: the Kubernetes API did not answer", why, remedy)


class ApiRefused(ClusterError):
    """The API answered with an error status."""

    def __init__(self, request: str, status: int, reason: str, message: str) -> None:
        super().__init__("UMB604", f"{request}: HTTP {status} {reason}".rstrip(), message, _remedy(status))
        self.status = status
        self.reason = reason
        """Kubernetes' reason, like Conflict or AlreadyExists; may be empty."""
        self.message = message


def _remedy(status: int) -> str:
    if status == 401:
        return "renew the credentials in the kubeconfig"
    if status == 403:
        return "grant the permission above (docs/replace-upstream.md lists those of server and agent)"
    return "check the API server's log at this time"


class IgnitionError(Fault):
    """An Ignition config cannot be read or edited."""


class BootstrapError(Fault):
    """An install directory, a node or a log bundle cannot be used."""
