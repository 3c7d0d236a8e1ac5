"""`umbilical proxy curl`: send one HTTP request through the tunnel; options are named as curl's."""

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from umbilical.cli.options import FILE, Command, check_readable, duration, tls_files
from umbilical.cli.ping import access_options, access_request
from umbilical.codes import FINDINGS
from umbilical.fault import HostedError
from umbilical.tunnel.settings import TlsFiles

if TYPE_CHECKING:
    from umbilical.hosted.access import AccessRequest, TunnelAccess
    from umbilical.hosted.endpoint_tls import EndpointTls
    from umbilical.hosted.http_call import Header, HttpCall, HttpExchange, Url
    from umbilical.hosted.route import EndpointRoute, PingResult

FORM: Final = "application/x-www-form-urlencoded"
_HIDDEN: Final = frozenset({"authorization", "cookie", "proxy-authorization"})

_ENDPOINT: Final = (
    click.option("--cacert", type=FILE, help="CA of the endpoint's certificate. Default: this machine's CAs."),
    click.option("--client-cert", type=FILE, help="Client certificate for the endpoint."),
    click.option("--client-key", type=FILE, help="Private key of --client-cert."),
    click.option("--endpoint-name", default="", metavar="NAME", help="Name in the endpoint's certificate."),
    click.option("-k", "--insecure", is_flag=True, help="Do not verify the endpoint's certificate."),
    click.option("--kubelet", is_flag=True, help="Use the kubelet credentials of the namespace; requires --namespace."),
    click.option("--node", metavar="NAME", help="Node whose kubelet serves /PATH. Default: that of the first Machine."),
)
_REQUEST: Final = (
    click.option("-X", "--request", "method", metavar="METHOD", help="HTTP method. Default: GET, or POST with -d."),
    click.option("-H", "--header", "headers", multiple=True, metavar="HEADER|@FILE", help="Header line; repeatable."),
    click.option("-d", "--data", metavar="DATA|@FILE", help="Request body; @- reads standard input."),
    click.option("-I", "--head", is_flag=True, help="Send HEAD and print the response headers."),
)
_OUTPUT: Final = (
    click.option("-i", "--include", is_flag=True, help="Print the response headers before the body."),
    click.option("-o", "--out", type=FILE, help="File for the response body."),
    click.option("-f", "--fail", is_flag=True, help="Exit with status 1 if the HTTP status is 400 or higher."),
    click.option("-v", "--verbose", is_flag=True, help="Print hops and headers on standard error."),
    click.option("--timeout", type=duration, default="10s", show_default=True, help="Timeout for each hop."),
    click.option("--max-time", type=duration, default="5m", show_default=True, help="Timeout for the whole request."),
)


def _curl_options(command: Command) -> Command:
    for option in reversed((*_REQUEST, *_ENDPOINT, *_OUTPUT)):
        command = option(command)
    return command


@click.command()
@click.argument("url", metavar="URL|/PATH")
@_curl_options
@access_options
def curl(url: str, **options: Any) -> int:
    """Request URL through the tunnel and print the response.

    The agent resolves the host name of URL. With --kubelet, /PATH alone is requested from a node's kubelet: its address
    is read from the Machines of the namespace. The exit status is 0 for any HTTP response, unless -f is given.
    """
    from umbilical.hosted.access import open_access

    if options["kubelet"] and options["namespace"] is None:
        raise click.UsageError("--kubelet needs --namespace: the credentials are read from there")
    if (options["node"] is not None or url.startswith("/")) and not (options["kubelet"] and url.startswith("/")):
        raise click.UsageError("--node and /PATH are for kubelets: give --kubelet, and /PATH instead of a URL")
    files = tls_files("client-", options["client_cert"], options["client_key"], options["cacert"])
    request = access_request(options, needs_kubelet=options["kubelet"])
    call = _call(_url(_kubelet_url(request, url, options) if url.startswith("/") else url), options)
    with open_access(request) as access:
        try:
            return asyncio.run(_bounded(access, call, _endpoint_tls(access, files, options), options))
        except BrokenPipeError:
            return _reader_left()


def _kubelet_url(request: "AccessRequest", path: str, options: dict[str, Any]) -> str:
    from umbilical.cluster.client import make_client
    from umbilical.hosted.machines import NodeMachine, find_machine

    async def find() -> NodeMachine:
        async with make_client(request.kubeconfig) as client:
            return await find_machine(client, options["namespace"], options["node"])

    machine = asyncio.run(find())
    if options["node"] is None or options["verbose"]:
        _print_lines("*", [f"kubelet of {machine.title}"])
    return machine.kubelet_url(path)


def _url(text: str) -> "Url":
    from umbilical.hosted.http_call import parse_url

    try:
        return parse_url(text)
    except ValueError as error:
        raise click.UsageError(f"{text!r} is not a valid URL: {error}") from None


def _call(url: "Url", options: dict[str, Any]) -> "HttpCall":
    from umbilical.hosted.http_call import HttpCall, names

    headers = [header for text in options["headers"] for header in _headers(text)]
    body = _body(options["data"])
    if body is not None and "content-type" not in names(headers):
        headers.append(("Content-Type", FORM))
    if options["head"] and body is not None:
        raise click.UsageError("-I and -d exclude each other: HEAD has no body")
    method = options["method"] or ("HEAD" if options["head"] else "GET" if body is None else "POST")
    return HttpCall(method, url, tuple(headers), body or b"")


def _headers(text: str) -> "list[Header]":
    """Read `Name: value`, or a file of such lines: arguments are visible in the list of processes."""
    lines = _read(text[1:]).decode("latin-1").splitlines() if text.startswith("@") else [text]
    headers = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise click.UsageError("a header must have the form 'Name: value'")
        headers.append((name.strip(), value.strip()))
    return headers


def _body(data: str | None) -> bytes | None:
    if data is None:
        return None
    return _read(data[1:]) if data.startswith("@") else data.encode()


def _read(name: str) -> bytes:
    if name == "-":
        return sys.stdin.buffer.read()
    check_readable(Path(name))
    return Path(name).read_bytes()


def _endpoint_tls(access: "TunnelAccess", given: TlsFiles, options: dict[str, Any]) -> "EndpointTls":
    """Use the given files; with --kubelet take the missing ones from the namespace."""
    from umbilical.hosted.endpoint_tls import EndpointTls

    kubelet = access.kubelet or TlsFiles()
    pair = given if given.certificate is not None else kubelet
    files = TlsFiles(pair.certificate, pair.key, given.authority or kubelet.authority)
    return EndpointTls(files, options["endpoint_name"], is_verified=not options["insecure"])


async def _bounded(access: "TunnelAccess", call: "HttpCall", tls: "EndpointTls", options: dict[str, Any]) -> int:
    from umbilical.hosted.route import EndpointRoute, RouteEndpoint

    url, limit = call.url, options["max_time"]
    endpoint = RouteEndpoint(url.host, url.port, tls if url.scheme == "https" else None)
    try:
        async with asyncio.timeout(limit), EndpointRoute(access, endpoint, max(options["timeout"], 0.001)) as route:
            return await _requested(route, call, options)
    except TimeoutError:
        why = f"timed out after {limit:g} s (--max-time)"
        raise HostedError(
            "UMB576", f"{call.method} {endpoint} was not completed", why, "repeat with --max-time 1h"
        ) from None


async def _requested(route: "EndpointRoute", call: "HttpCall", options: dict[str, Any]) -> int:
    from umbilical.hosted.http_call import HttpExchange

    result, pipe = await route.open()
    if options["verbose"]:
        _print_hops(result)
    if pipe is None:
        failure = result.failure
        assert failure is not None
        raise HostedError(failure.code, failure.what, failure.why, failure.remedy)
    try:
        return await _exchanged(HttpExchange(pipe), call, options)
    finally:
        pipe.close()


async def _exchanged(exchange: "HttpExchange", call: "HttpCall", options: dict[str, Any]) -> int:
    if options["verbose"]:
        _print_lines(">", [f"{call.method} {call.url.path} HTTP/1.1", f"Host: {call.url.authority}"])
        _print_lines(">", [f"{name}: {_shown(name, value)}" for name, value in call.headers])
    await exchange.send(call)
    answer = await exchange.answer()
    if options["verbose"]:
        _print_lines("<", answer.head.split("\r\n")[:-2])
    # Opened only now: a request that fails leaves an existing file unchanged.
    with _sink(options["out"]) as write:
        if options["include"] or options["head"]:
            write(answer.head.encode("latin-1"))
        async for octets in exchange.body():
            write(octets)
    return FINDINGS if options["fail"] and answer.status >= 400 else 0


@contextmanager
def _sink(path: Path | None) -> Iterator[Callable[[bytes], None]]:
    """Yield a function that writes the body unbuffered."""
    if path is None:
        yield _write_out
        return
    try:
        with path.open("wb", buffering=0) as stream:
            yield lambda octets: _write_all(stream, octets)
    except OSError as error:
        why = error.strerror or str(error)
        raise HostedError("UMB578", f"could not write {path}", why, f"ls -ld {path.parent}; df {path.parent}") from None


def _write_out(octets: bytes) -> None:
    stream = sys.stdout.buffer
    stream.write(octets)
    stream.flush()


def _write_all(stream: FileIO, octets: bytes) -> None:
    view = memoryview(octets)
    while view:
        view = view[stream.write(view) :]


def _reader_left() -> int:
    """The reader of our output has closed it (`| head`): keep Python from reporting that at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _print_hops(result: "PingResult") -> None:
    from umbilical.cli.ping_text import milliseconds, tls_line

    now = datetime.now(UTC)
    failed = result.failure.hop if result.failure is not None else ""
    for hop in result.hops:
        verdict = "failed" if hop.name == failed else hop.detail
        _print_lines("*", [f"{hop.name:<13}{milliseconds(hop.seconds):>8}  {verdict}"])
        facts = {"tls": result.server, "endpoint tls": result.endpoint}.get(hop.name)
        if facts is not None:
            _print_lines("*", [f"{'':<13}{'':>8}  {tls_line(facts, now, 'not verified')}"])


def _print_lines(mark: str, lines: list[str]) -> None:
    from umbilical.checks.report import printable

    for line in lines:
        click.echo(printable(f"{mark} {line}"), err=True)


def _shown(name: str, value: str) -> str:
    return "(hidden)" if name.lower() in _HIDDEN else value
