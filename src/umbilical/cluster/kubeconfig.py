"""Where the API is and who we are: a kubeconfig file, or the pod's own service account. lightkube reads both."""

from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from umbilical.fault import ClusterError

if TYPE_CHECKING:
    from lightkube import KubeConfig
    from lightkube.config.kubeconfig import SingleConfig


def load(kubeconfig: Path | None) -> "SingleConfig":
    """Read the file's current context; without a file, the in-cluster configuration.

    Raises:
        ClusterError: lightkube is missing, or there is nothing usable.
    """
    try:
        from lightkube import KubeConfig
    except ImportError as error:
        raise _no_library(error) from error
    if kubeconfig is None:
        return _chosen(_from_pod(KubeConfig), "the pod's service account")
    return _chosen(_from_file(KubeConfig, kubeconfig), str(kubeconfig))


def is_loopback(server: str) -> bool:
    """Tell whether the API is on this very machine: then no proxy from the environment applies, as in Go."""
    host = urlsplit(server).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _from_pod(reader: "type[KubeConfig]") -> "KubeConfig":
    from lightkube.core.exceptions import ConfigError

    try:
        return reader.from_service_account()
    except (ConfigError, KeyError, OSError) as error:
        raise ClusterError(
            "UMB602",
            "no kubeconfig given, and this is not a pod with a service account",
            f"missing: {error}",
            "pass --kubeconfig=FILE, or mount the service account token",
        ) from error


def _from_file(reader: "type[KubeConfig]", path: Path) -> "KubeConfig":
    import msgspec
    import yaml
    from lightkube.core.exceptions import ConfigError

    try:
        return reader.from_file(path)
    except KeyError as error:
        raise _unusable(str(path), f"no {error} in it") from error
    except (ConfigError, OSError, yaml.YAMLError, msgspec.ValidationError, TypeError, AttributeError) as error:
        raise _unusable(str(path), str(error)) from error


def _chosen(config: "KubeConfig", origin: str) -> "SingleConfig":
    from lightkube.config.models import User
    from lightkube.core.exceptions import ConfigError

    try:
        single = config.get()
    except KeyError as error:
        raise _unusable(origin, f"its current context names {error}, which is not in it") from error
    except ConfigError as error:
        raise _unusable(origin, str(error)) from error
    if single is None:
        raise _unusable(origin, "no current context")
    # lightkube asserts that there is a user; a context without one is how an open test API is reached.
    return single if single.user is not None else single._replace(user=User())


def _unusable(origin: str, why: str) -> ClusterError:
    return ClusterError(
        "UMB601", f"kubeconfig {origin} cannot be used", why, "try it: kubectl --kubeconfig FILE version"
    )


def _no_library(error: ImportError) -> ClusterError:
    return ClusterError(
        "UMB605",
        "the Kubernetes client library is not installed",
        f"token review and leases need lightkube: {error}",
        "pip install 'umbilical[k8s]'",
    )
