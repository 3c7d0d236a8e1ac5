"""How every command fails: what, why, what next, under a code of docs/errors.md, and an exit status for scripts.

One form for all rooms. The kinds below it are for callers that act on one of them; `cli` prints them all alike.
"""


class Fault(Exception):
    """`str()` is the whole message of three lines, code first."""

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
        """One line, for logs of loops that go on."""
        return f"{self.code} {self.what}: {self.why}"

    @property
    def exit_status(self) -> int:
        """Of a command that ends with this fault: the code's, from the one table of codes."""
        from umbilical.codes import exit_status

        return exit_status(self.code)


class StartupError(Fault):
    """A server, an agent or a proxy cannot start as it is told to."""

    def __str__(self) -> str:
        """Upstream's form, which the drop-ins and logs use: without the code, in one line."""
        return f"{self.what}: {self.why}"


class HardwayError(Fault):
    """Something is wrong and has to be mended."""


class StageTimeout(HardwayError):
    """A stage waited too long for something; trying again may help."""

    exit_status = 9


class Unsafe(HardwayError):
    """Going on would lose something that cannot be brought back; nothing was done."""

    exit_status = 7


class RenderError(Fault):
    """What was asked for contradicts itself, or the installer's output."""


class LabError(Fault):
    """The lab, or the machine under it, is not as needed."""


class PodError(LabError):
    """This pod cannot run as it is written, or not yet."""


class PodWaiting(PodError):
    """Something that the pod needs is not there yet; it is asked for again. `reason` is the kubelet's word for it."""

    def __init__(self, code: str, what: str, why: str, remedy: str, reason: str) -> None:
        super().__init__(code, what, why, remedy)
        self.reason = reason


class HostedError(Fault):
    """Input, files or the world are not as the command needs them."""


class PkiError(Fault):
    """Something about a certificate, its key or its authority."""


class HostError(Fault):
    """Something on this machine is not as needed."""


class ClusterError(Fault):
    """The cluster cannot be used as asked."""


class ApiUnreachable(ClusterError):
    """No HTTP answer came: refused, unresolvable, untrusted, or too slow."""

    def __init__(self, request: str, why: str) -> None:
        remedy = "check that the API server runs and that the kubeconfig names it: kubectl cluster-info"
        super().__init__("UMB603", f"{request}: the Kubernetes API does not answer", why, remedy)


class ApiRefused(ClusterError):
    """The API answered with an error status."""

    def __init__(self, request: str, status: int, reason: str, message: str) -> None:
        super().__init__("UMB604", f"{request}: HTTP {status} {reason}".rstrip(), message, _remedy(status))
        self.status = status
        self.reason = reason
        """Kubernetes' own word, like Conflict or AlreadyExists; empty when it gave none."""
        self.message = message


def _remedy(status: int) -> str:
    if status == 401:
        return "renew the credentials in the kubeconfig"
    if status == 403:
        return "grant the right that is named above (docs/replace-upstream.md lists what server and agent need)"
    return "read the API server's log around this time"


class IgnitionError(Fault):
    """The config cannot be read, or not be edited as asked."""


class BootstrapError(Fault):
    """An install directory, a node or a log bundle is not as needed."""
