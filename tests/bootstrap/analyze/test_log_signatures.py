"""The lines that give causes away: as the real programs print them, and not found where nothing is wrong."""

import io
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import tunnel_pair
from tests.support.log_bundles import AGENT_LOG, APISERVER_LOG, EVENTS, JOURNAL, SERVER_LOG
from tests.support.tunnel_pair import free_port
from tests.support.tunnel_pki import FolderAuthority, Pair

import peers
from umbilical.bootstrap.analyze.signatures import (
    BLOCK_BYTES,
    MARGIN,
    MAX_LINE_BYTES,
    SIGNATURES,
    WHERE,
    Evidence,
    FileKind,
    LogMatches,
    LogSignature,
    search,
)

PATIENCE_SECONDS = 60.0
NAMESPACE = "openshift-bootstrap-konnectivity"
SOCKET = "/etc/kubernetes/config/konnectivity-server.socket"
FORBIDDEN = r"pods \"konnectivity-agent-\" is forbidden"


def names_in(path: str, *lines: str) -> set[str]:
    signatures = [signature for signature in SIGNATURES if signature.where.search(path)]
    return {name for name, _ in search(path, io.BytesIO("\n".join(lines).encode()), signatures)}


def said_by(command: Sequence[str], log: Path, is_enough: Callable[[str], bool]) -> str:
    """Run a program until its log holds enough, or it ends."""
    with open(log, "wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as program:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while program.poll() is None and not is_enough(log.read_text("utf-8", "replace")):
            assert time.monotonic() < deadline, log.read_text("utf-8", "replace")
            time.sleep(0.02)
        program.kill()
    return log.read_text("utf-8", "replace")


def program(name: str) -> str:
    path = peers.binary(name)
    assert path is not None
    return str(path)


def agent_command(authority: FolderAuthority, agent: Pair, port: int) -> list[str]:
    return [
        *(program("proxy-agent"), "--logtostderr=true", "--sync-interval=100ms"),
        *(f"--ca-cert={authority.certificate_file}", f"--agent-cert={agent.certificate}", f"--agent-key={agent.key}"),
        *("--proxy-server-host=127.0.0.1", f"--proxy-server-port={port}"),
        *(f"--health-server-port={free_port()}", f"--admin-server-port={free_port()}"),
    ]


@pytest.mark.real("proxy-agent")
def test_a_real_agent_that_is_refused_is_recognised(tmp_path: Path) -> None:
    authority = FolderAuthority(tmp_path)
    command = agent_command(authority, authority.client("agent"), free_port())
    assert names_in(AGENT_LOG, said_by(command, tmp_path / "log", lambda log: "cannot connect once" in log)) == {
        "port refused"
    }
    # Without a host it dials its own node: this shows nothing about the server.
    command = [option.replace("host=127.0.0.1", "host=") for option in command]
    assert names_in(AGENT_LOG, said_by(command, tmp_path / "log", lambda log: "cannot connect once" in log)) == {
        "no host"
    }


@pytest.mark.real("proxy-agent", "proxy-server")
@pytest.mark.parametrize(
    ("hosts", "trusts", "cause"), [(("127.0.0.2",), "ca", "wrong name"), (("127.0.0.1",), "other", "unknown authority")]
)
def test_a_real_agent_tells_why_it_refuses(tmp_path: Path, hosts: tuple[str, ...], trusts: str, cause: str) -> None:
    authorities = {name: FolderAuthority(tmp_path, name) for name in ("ca", "other")}
    server, port = authorities["ca"].serving("server", hosts), free_port()
    command = [
        *(program("proxy-server"), "--logtostderr=true", f"--uds-name={tmp_path}/s", "--server-port=0"),
        *(f"--agent-port={port}", f"--health-port={free_port()}", f"--admin-port={free_port()}"),
        *(f"--cluster-cert={server.certificate}", f"--cluster-key={server.key}"),
        f"--cluster-ca-cert={authorities['ca'].certificate_file}",
    ]
    with open(tmp_path / "server", "wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as running:
        try:
            agent = agent_command(authorities[trusts], authorities["ca"].client("agent"), port)
            said = said_by(agent, tmp_path / "log", lambda log: "x509" in log)
        finally:
            running.kill()
    assert names_in(AGENT_LOG, said) - {"port refused"} == {cause}


@pytest.mark.real("proxy-agent")
@pytest.mark.parametrize("implementation", ["ours", "upstream"])
def test_a_real_agent_without_a_ca_is_recognised(tmp_path: Path, implementation: str) -> None:
    agent = str(tunnel_pair.program(implementation, "proxy-agent"))
    command = [agent, "--proxy-server-host=127.0.0.1", f"--proxy-server-port={free_port()}"]
    said = said_by(command, tmp_path / "log", lambda log: False)
    assert names_in(AGENT_LOG, said) == {"agent without CA"}


@pytest.mark.real("proxy-server")
def test_a_real_server_that_refuses_its_options_is_recognised(tmp_path: Path) -> None:
    said = said_by([program("proxy-server"), f"--uds-name={tmp_path}/s"], tmp_path / "log", lambda log: False)
    assert names_in(SERVER_LOG, said) == {"server options"}


@pytest.mark.real("kube-apiserver")
@pytest.mark.parametrize(
    ("content", "causes"),
    [
        (None, {"egress flag", "no egress file", "bad egress file"}),
        ("kind: Wrong\n", {"egress flag", "bad egress file"}),
    ],
)
def test_a_real_kube_apiserver_without_egress_is_known(tmp_path: Path, content: str | None, causes: set[str]) -> None:
    pair = FolderAuthority(tmp_path).serving("sa")
    egress = tmp_path / "egress.yaml"
    if content is not None:
        egress.write_text(content)
    command = [
        *(program("kube-apiserver"), "--v=2", f"--egress-selector-config-file={egress}", f"--cert-dir={tmp_path}"),
        *(f"--etcd-servers=http://127.0.0.1:{free_port()}", "--service-account-issuer=https://issuer"),
        *(f"--service-account-key-file={pair.certificate}", f"--service-account-signing-key-file={pair.key}"),
    ]
    said = said_by(command, tmp_path / "log", lambda log: False)
    assert names_in(APISERVER_LOG, said) == causes


@pytest.mark.real("openssl")
def test_the_real_openssl_refuses_null_in_words_that_are_recognised() -> None:
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x", "-keyout", "/dev/null"]
    refused = subprocess.run(
        [*command, "-addext", "subjectAltName=IP:null"], capture_output=True, text=True, timeout=60, check=False
    )
    assert refused.returncode != 0
    assert names_in(JOURNAL, refused.stderr) == {"null address"}


@pytest.mark.real("bash")
def test_a_real_bash_names_the_program_that_it_did_not_find() -> None:
    said = subprocess.run(
        ["bash", "-c", "envsubst-is-not-here"], capture_output=True, text=True, timeout=30, check=False
    )
    assert names_in(JOURNAL, said.stderr) == {"no program"}


def test_a_known_line_is_recognised() -> None:
    for path, line, name in (
        (AGENT_LOG, '"cannot connect once" err="dial tcp 10.0.0.9:8091: i/o timeout"', "port closed"),
        (AGENT_LOG, '"cannot connect once" err="context deadline exceeded"', "port closed"),
        (AGENT_LOG, "cannot connect to server=10.0.0.9:8091: no answer within 20 s", "port closed"),
        (AGENT_LOG, "cannot connect to server=10.0.0.9:8091: [Errno 101] Network is unreachable", "port closed"),
        (
            AGENT_LOG,
            '"cannot connect once" err="dial tcp 10.0.0.9:8091: connect: network is unreachable"',
            "port closed",
        ),
        (AGENT_LOG, "cannot connect to server=10.0.0.9:8091: [Errno 111] Connection refused", "port refused"),
        (AGENT_LOG, "x509: certificate has expired or is not yet valid: current time is after", "expired"),
        (AGENT_LOG, "x509: cannot validate certificate for 10.0.0.9 because it has no SANs", "wrong name"),
        (AGENT_LOG, "UMB314 cannot connect to server=:8091: TCP: lookup : Name or service not known", "no host"),
        (AGENT_LOG, "IP address mismatch, certificate is not valid for '10.0.0.9'", "wrong name"),
        (JOURNAL, "UMB112 could not find the bootstrap node IP", "no address"),
        (JOURNAL, "UMB116 found no image for the tunnel", "no image"),
        (JOURNAL, "F1115 error: Unknown name requested, could not find apiserver-network-proxy in X", "no image"),
        (JOURNAL, "RTNETLINK answers: Network is unreachable", "no route"),
        (JOURNAL, "/usr/local/bin/konnectivity.sh: line 20: envsubst: command not found", "no program"),
        (JOURNAL, "attempt to record the start of a stage without ending the previous one", "nested stage"),
        (JOURNAL, "warning: 10.0.0.9 is no longer on this machine, but agents still dial it", "address gone"),
        (JOURNAL, f"error: timed out waiting for the condition on namespaces/{NAMESPACE}", "cleanup waits"),
        ("bootstrap/journals/journal.log.gz", 'pod="kube-system/konnectivity-server" ErrImagePull', "image not pulled"),
        (APISERVER_LOG, f'err="dial unix {SOCKET}: connect: no such file or directory"', "no socket"),
        (SERVER_LOG, '"Failed to get a backend" err="No agent available" dialID=7', "no agent"),
        (EVENTS, rf'"message": "{FORBIDDEN}: violates PodSecurity"', "pod security refusal"),
        (EVENTS, rf'"{FORBIDDEN}: unable to validate against any security context constraint"', "scc refusal"),
    ):
        assert names_in(path, line) == {name}


FAILED = 'failed calling webhook "v.example.io": failed to call webhook: Post "https://%s?timeout=10s": %s'


@pytest.mark.parametrize(
    ("place", "reason", "names"),
    [
        ("hook.capi.svc:443/check", "dial tcp 10.128.0.7:8443: i/o timeout", {"call without answer"}),
        ("hook.capi.svc/check", "EOF", set()),
        ("hooks.example.com:8443/check", "dial tcp 192.0.2.7:8443: i/o timeout", {"url webhook"}),
        ("127.0.0.1:9443/check", "connection refused", {"url webhook"}),
        ("hook.svc.example.com/check", "EOF", {"url webhook"}),
        ("hook.capi.svc:443/check", 'no endpoints available for service "hook"', {"no endpoint"}),
        ("hook.capi.svc:443/check", 'service "hook" not found', {"no endpoint"}),
        ("hook.capi.svc:443/check", "No agent available", {"no agent"}),
        (
            "hook.capi.svc:443/check",
            "proxy error from /x.socket while dialing 10.128.0.7:8443, code 500: 500 Internal Server Error",
            {"no agent", "proxy error"},
        ),
        (
            "hook.capi.svc:443/check",
            "proxy error from /x.socket while dialing 10.128.0.7:8443, code 504: 504 Gateway Timeout",
            {"proxy error"},
        ),
    ],
)
@pytest.mark.parametrize("escaped", [False, True])
def test_webhooks_by_url_are_told_from_those_of_services(
    place: str, reason: str, names: set[str], escaped: bool
) -> None:
    line = FAILED % (place, reason)
    assert names_in(APISERVER_LOG, line.replace('"', '\\"') if escaped else line) == names


def test_a_line_of_others_is_not_taken_for_ours() -> None:
    for path, line in (
        (EVENTS, "pods other is forbidden: unable to validate against any security context constraint"),
        (JOURNAL, "podman run ... 2>/dev/null null"),
        (AGENT_LOG, '"connected" server="x"'),
        (AGENT_LOG, '"error dialing backend" err="dial tcp: lookup a.b.svc on 172.30.0.10:53: no such host"'),
        (APISERVER_LOG, "dial unix /run/other.socket: connect"),
        ("control-plane/10.0.0.5/journals/kubelet.log", "UMB112"),
        ("resources/pods.json", "No agent available"),
    ):
        assert names_in(path, line) == set()


def test_a_kind_of_file_is_known_by_its_path() -> None:
    for path, kind in (
        ("bootstrap/services/bootkube.json", FileKind.RECORD),
        ("bootkube.json", FileKind.RECORD),
        (JOURNAL, FileKind.JOURNAL),
        ("unit-status/bootkube.service.log", FileKind.JOURNAL),
        (SERVER_LOG, FileKind.SERVER_LOG),
        (APISERVER_LOG, FileKind.APISERVER_LOG),
        ("bootstrap/containers/bootstrap-control-plane/kube-apiserver.log", FileKind.APISERVER_LOG),
        (AGENT_LOG, FileKind.AGENT_LOG),
        ("rendered-assets/openshift/tls/konnectivity/server.crt", FileKind.CERTIFICATES),
        ("rendered-assets/openshift/umbilical/pki/server/tls.crt", FileKind.CERTIFICATES),
    ):
        assert [one for one, where in WHERE.items() if where.search(path)] == [kind]


def test_names_of_signatures_are_unique() -> None:
    names = [signature.name for signature in SIGNATURES]
    assert len(names) == len(set(names))


NEEDLE = LogSignature("needle", re.compile(""), (b"needle",), re.compile(rb"needle\d?"))
EXACT = LogSignature("seven", re.compile(""), (b"needle",), re.compile(rb"needle7"))


class Pieces:
    """A stream that gives a given number of bytes at a time."""

    def __init__(self, content: bytes, size: int) -> None:
        self._stream = io.BytesIO(content)
        self._size = size

    def read(self, size: int, /) -> bytes:
        return self._stream.read(min(size, self._size))


def found(content: bytes, size: int = BLOCK_BYTES, signatures: tuple[LogSignature, ...] = (NEEDLE,)) -> list[int]:
    return [evidence.line for _, evidence in search("a.log", Pieces(content, size), signatures)]


def test_a_line_is_found_with_its_number_however_the_stream_splits() -> None:
    for size in (1, 2, 7, 1000):
        assert found(b"one\nneedle\n\nfour needle\nend needle", size) == [2, 4, 5]


@given(st.lists(st.sampled_from([b"", b"hay", b"needle", b"x" * 50]), max_size=20), st.integers(1, 60))
def test_numbers_are_those_of_a_plain_search(lines: list[bytes], size: int) -> None:
    expected = [number for number, line in enumerate(lines, start=1) if b"needle" in line]
    assert found(b"\n".join(lines), size) == expected


def test_a_line_must_fit_the_pattern_too_by_whichever_needle() -> None:
    names = [name for name, _ in search("a", io.BytesIO(b"needle\nneedle7\n"), (NEEDLE, EXACT))]
    assert names == ["needle", "needle", "seven"]
    either = LogSignature("either", re.compile(""), (b"one", b"two"), re.compile(rb"two!"))
    assert [name for name, _ in search("a", io.BytesIO(b"one" + b" " * 5000 + b"two!"), (either,))] == ["either"]


def test_a_line_without_an_end_is_searched_in_pieces() -> None:
    content = b"x" * (3 * MAX_LINE_BYTES) + b" needle " + b"x" * (3 * MAX_LINE_BYTES) + b"\nneedle\n"
    assert found(content, 1 << 15) == [1, 2]


def test_a_long_line_is_cut_around_what_was_found() -> None:
    content = b"a" * 5000 + b"needle" + b"b" * 5000
    ((_, evidence),) = search("a.log", io.BytesIO(content), (NEEDLE,))
    assert "needle" in evidence.text
    assert len(evidence.text) < 3 * MARGIN
    assert evidence.text.startswith("...")
    assert evidence.text.endswith("...")


def test_a_long_match_is_shown_with_both_ends() -> None:
    place = f"{'hook-' * 12}service.{'openshift-' * 5}x.svc:9443/{'validate-' * 12}"
    line = FAILED % (place, "dial tcp [fd01:0:0:1::5]:8443: connect: no route to host")
    ((name, evidence),) = search(APISERVER_LOG, io.BytesIO(f"W1115 {line}\n".encode()), SIGNATURES)
    assert (name, evidence.address) == ("call without route", "fd01:0:0:1::5")
    assert evidence.text.startswith('failed calling webhook "v.example.io"')
    assert evidence.text.endswith("connect: no route to host")
    assert len(evidence.text) < 3 * MARGIN


def test_what_could_steer_a_terminal_is_escaped_and_what_looks_like_a_password_not_shown() -> None:
    ((_, evidence),) = search("a\x1b[2J.log", io.BytesIO(b"\x1b[31mneedle\r\x07\xff\n"), (NEEDLE,))
    assert "\\x1b[31mneedle" in evidence.text
    assert str(evidence).isprintable()
    for line in ("Authorization: Bearer abc.def.ghi needle", "needle --token=abc.def.ghi x"):
        ((_, evidence),) = search("a.log", io.BytesIO(line.encode()), (NEEDLE,))
        assert "abc" not in evidence.text
        assert "***" in evidence.text
    long = LogSignature("long", re.compile(""), (b"needle",), re.compile(rb"needle.*end"))
    content = b"needle " + b"x" * MARGIN + b" token=" + b"abc" * MARGIN + b" end"
    ((_, evidence),) = search("a.log", io.BytesIO(content), (long,))
    assert "abc" not in evidence.text


def test_many_matches_are_shown_by_the_first_and_the_last() -> None:
    found = LogMatches(Evidence("a.log", 3, "first"))
    assert str(found) == 'a.log:3 "first"'
    for line in range(4, 10):
        found.add(Evidence("b.log", line, "next"))
    assert str(found) == 'a.log:3 "first"\n7 such lines, the last at b.log:9'


def test_a_line_that_was_made_to_be_slow_is_not() -> None:
    """Quadratic patterns would take hours on this: only what is around the needle is tried."""
    slow = LogSignature("slow", re.compile(""), (b"needle",), re.compile(rb"a.*b.*needle.*c.*d"))
    content = b"a" * 30_000 + b"b" * 30_000 + b"needle" + b"c" * 60_000 + b"\n"
    assert list(search("a.log", io.BytesIO(content), (slow,))) == []
