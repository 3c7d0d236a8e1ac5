"""`lab-admission-caller`: calls an admission webhook as kube-apiserver does; the lab runs it."""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from umbilical.cli.options import FILE, duration, server_address
from umbilical.codes import CONFIGURATION, INTERRUPTED, USAGE
from umbilical.fault import LabError

if TYPE_CHECKING:
    from umbilical.lab.admission_review import Webhook
    from umbilical.lab.egress_selector import Egress

PROGRAM: Final = "lab-admission-caller"
MAX_CALLS: Final = 1000
MAX_TIMEOUT_SECONDS: Final = 30.0
"""kube-apiserver's own maximum for a webhook."""
MAX_OBJECT_BYTES: Final = 1 << 20
"""About etcd's limit for one request."""


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    try:
        caller.main(list(arguments), prog_name=PROGRAM, standalone_mode=False)
    except LabError as fault:
        click.echo(str(fault), err=True)
        return CONFIGURATION
    except click.ClickException as fault:
        click.echo(
            f"UMB001 {PROGRAM}: wrong usage\n  why: {fault.format_message()}\n  next: {PROGRAM} --help", err=True
        )
        return USAGE
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    return 0


def _label(text: str) -> str:
    """Check a Kubernetes name (RFC 1123 label)."""
    if len(text) > 63 or not re.fullmatch("[a-z0-9]([a-z0-9-]*[a-z0-9])?", text):
        raise click.BadParameter(f"{text!r} is not a valid name: use lower-case letters, digits and -")
    return text


def _path(text: str) -> str:
    if not re.fullmatch("/[!-~]*", text):
        raise click.BadParameter(f"{text!r} is not a URL path")
    return text


def _timeout(text: str) -> float:
    seconds = duration(text)
    if not 0 < seconds <= MAX_TIMEOUT_SECONDS:
        raise click.BadParameter(f"{text} is not between 0 and {MAX_TIMEOUT_SECONDS:g}s")
    return seconds


@click.command(context_settings={"max_content_width": 110, "help_option_names": ["-h", "--help"]})
@click.option(
    "--egress-selector-config-file", "egress_file", type=FILE, help="Egress selector; default: dial directly."
)
@click.option("--address", required=True, metavar="HOST:PORT", help="Pod address and port of the webhook.")
@click.option(
    "--service", type=_label, metavar="NAME", default="webhook", show_default=True, help="Service of the webhook."
)
@click.option("--namespace", type=_label, metavar="NAME", default="lab", show_default=True, help="Service namespace.")
@click.option(
    "--path", type=_path, metavar="PATH", default="/validate", show_default=True, help="URL path of the webhook."
)
@click.option("--webhook", "name", metavar="NAME", help="Webhook name in messages; default: SERVICE.NAMESPACE.svc.")
@click.option("--ca-file", required=True, type=FILE, help="CA certificate of the webhook (caBundle).")
@click.option("--object", "object_file", default="-", metavar="FILE", help="Object to review, as JSON; - reads stdin.")
@click.option(
    "--timeout",
    type=_timeout,
    metavar="DURATION",
    default="5s",
    show_default=True,
    help="Timeout of one call, like timeoutSeconds.",
)
@click.option("--count", type=click.IntRange(1, MAX_CALLS), default=1, show_default=True, help="Number of calls.")
def caller(
    egress_file: Path | None,
    address: str,
    service: str,
    namespace: str,
    path: str,
    name: str | None,
    ca_file: Path,
    object_file: str,
    timeout: float,
    count: int,
) -> None:
    """Call an admission webhook as kube-apiserver does.

    The connection uses the same EgressSelectorConfiguration that kube-apiserver reads. Each call is a real
    AdmissionReview over TLS on a new connection. The result is one JSON object on stdout.
    """
    from umbilical.lab.admission_review import Webhook, review, summary
    from umbilical.lab.egress_selector import dialling

    server_address(address)
    egress = _egress(egress_file)
    context = _context(ca_file)
    value = _object(object_file)
    webhook = Webhook(name or f"{service}.{namespace}.svc", service, namespace, path, address, timeout_seconds=timeout)
    with dialling(egress) as dial:
        verdicts = [review(webhook, context, value, dial) for _ in range(count)]
    click.echo(json.dumps({**summary(verdicts), "egress": egress.protocol.value, "webhook": _facts(webhook)}))


def _facts(webhook: "Webhook") -> dict[str, str]:
    return {"name": webhook.name, "url": webhook.url, "address": webhook.address}


def _egress(path: Path | None) -> "Egress":
    from umbilical.lab.egress_selector import DIRECT, cluster_egress

    return DIRECT if path is None else cluster_egress(_read(path, "UMB885", "egress selector"), str(path))


def _context(ca_file: Path) -> Any:
    import ssl

    text = _read(ca_file, "UMB886", "CA file of the webhook").decode("utf-8", "replace")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError):
        why = "it contains no PEM certificate"
        raise LabError(
            "UMB886", f"no CA was read from {ca_file}", why, "give the webhook's caBundle as a file"
        ) from None
    return context


def _object(source: str) -> dict[str, Any]:
    content = (
        sys.stdin.buffer.read(MAX_OBJECT_BYTES + 1) if source == "-" else _read(Path(source), "UMB887", "object file")
    )
    why = f"it has more than {MAX_OBJECT_BYTES} bytes" if len(content) > MAX_OBJECT_BYTES else "it is not a JSON object"
    try:
        value = json.loads(content) if len(content) <= MAX_OBJECT_BYTES else None
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or not isinstance(value.get("metadata", {}), dict):
        where = "stdin" if source == "-" else source
        raise LabError("UMB887", f"no object was read from {where}", why, "give the output of `kubectl get -o json`")
    return value


def _read(path: Path, code: str, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise LabError(code, f"the {what} {path} was not read", error.strerror or str(error), f"ls -l {path}") from None
