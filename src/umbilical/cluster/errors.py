"""What the Kubernetes API or the way to it refused: three lines for the user, fields for the caller."""

from umbilical.fault import Fault


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
