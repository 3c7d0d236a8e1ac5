"""What a hosted control plane loses under load when a server is stopped, renewed or killed.

Every call and stream is recorded with its times, so that each failure can be matched with what was running then.
"""

import json
import signal
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from umbilical.host.waiting import NotYet
from umbilical.hosted.pki.table import CLIENT
from umbilical.hosted.pki.table import SERVER as SERVER_LEAF
from umbilical.lab import api_calls
from umbilical.lab.hosted import parts
from umbilical.lab.hosted.parts import CLIENT_NODE, SERVER_NODES
from umbilical.lab.hosted.stage import HTTPS, SERVER, SERVERS, SOCKS, HostedStage, complaint
from umbilical.lab.proxy_client import ProxyProtocol, ProxyRoute
from umbilical.lab.testbed import BOOTSTRAP
from umbilical.lab.through_proxies import ProxiedCall, StreamEvent, StreamMoment, read_events
from umbilical.lab.transcript import CallResult

KILLED, STOPPED, SPARED = SERVER_NODES
"""First server of the HTTPS proxy, first server of the SOCKS proxy, and the spare one."""
WEBHOOK_CALLS: Final = "webhook-calls"
WEBHOOK_STOP: Final = f"/run/{WEBHOOK_CALLS}.stop"
CALLS: Final = "proxied-calls"
LATER_CALLS: Final = "later-calls"
HELD: Final = "held-streams"
HELD_EACH: Final = 4


def lose_nothing(stage: HostedStage) -> None:
    transcript, ways = stage.transcript, parts.ways()
    with transcript.step("start calling through kube-apiserver and both proxies"):
        stage.lab.start(BOOTSTRAP, WEBHOOK_CALLS, api_calls.command("until", WEBHOOK_STOP))
        stage.start_callers("call", CALLS, ways)
        stage.wait_for_calls(CALLS, ways, 0.0)
    with transcript.step(f"the server on {STOPPED} drains and is restarted"):
        _replace_server(stage)
        stage.wait_for_calls(CALLS, ways, time.monotonic())
    with transcript.step(f"renew certificates of the proxies and of {KILLED}"):
        _renew(stage)
        stage.wait_for_calls(CALLS, ways, time.monotonic())
    with transcript.step("no request was lost"):
        stage.stop_callers(CALLS)
        _check_webhook_calls(stage)
        _check_no_failure(stage, stage.calls(CALLS))


def _replace_server(stage: HostedStage) -> None:
    transcript, ways = stage.transcript, parts.ways()
    stage.lead_kube_apiserver([node for node in SERVER_NODES if node != STOPPED])
    asked = stage.signal(STOPPED, SERVER, signal.SIGTERM)
    code = stage.wait_until_gone(STOPPED, SERVER)
    transcript.saw(f"it exited with code {code} after {time.monotonic() - asked:.1f} s")
    stage.wait_for_calls(CALLS, ways, time.monotonic())
    transcript.saw("calls continue through the others")
    stage.start(STOPPED, SERVER, stage.parts.server)
    stage.wait_for_agents([node.name for node in stage.topology.members])
    stage.lead_kube_apiserver(SERVER_NODES)
    transcript.saw("the new server has every agent")


def _renew(stage: HostedStage) -> None:
    """Write new certificates, and wait until each program reports that it loaded them."""
    reloads, good = "umbilical_certificate_reloads_total", 'result="success"'
    programs = (SERVERS[KILLED], HTTPS, SOCKS)
    before = {program: stage.metric(program, reloads, good) for program in programs}
    now = datetime.now(UTC)
    stage.parts = stage.parts.renewed(SERVER_LEAF, now).renewed(CLIENT, now)
    stage.lab.write_all(KILLED, stage.parts.server.files)
    stage.lab.write_all(CLIENT_NODE, stage.parts.proxy_files)

    def look() -> None:
        late = [program.title for program in programs if stage.metric(program, reloads, good) == before[program]]
        if late:
            raise NotYet(f"{', '.join(late)} did not load its new certificate")

    stage.wait("the new certificates to be in use", look)
    stage.transcript.saw(f"loaded by {', '.join(program.title for program in programs)}, without a restart")


def _check_webhook_calls(stage: HostedStage) -> None:
    stage.lab.write(BOOTSTRAP, WEBHOOK_STOP, b"")
    stage.wait_until_gone(BOOTSTRAP, WEBHOOK_CALLS)
    calls: dict[str, Any] = json.loads(stage.lab.log(BOOTSTRAP, WEBHOOK_CALLS).splitlines()[-1])
    if calls["failed"] or not calls["allowed"]:
        raise complaint(f"{calls['failed']} calls of kube-apiserver failed", str(calls["failures"][:1]))
    stage.transcript.figures["calls of kube-apiserver"] = str(calls["allowed"])
    slowest = calls["slowest_seconds"]
    stage.transcript.saw(f"kube-apiserver: {calls['allowed']} calls, 0 failed, slowest {slowest:.2f} s")


def _check_no_failure(stage: HostedStage, calls: Sequence[ProxiedCall]) -> None:
    failed = [call for call in calls if call.failure]
    if failed:
        raise complaint(f"{len(failed)} of {len(calls)} calls through proxies failed", _words(failed[0]))
    for way in parts.ways():
        seconds = [call.seconds for call in calls if call.way == way]
        stage.transcript.saw(f"{way}: {len(seconds)} calls, 0 failed, slowest {max(seconds):.2f} s")
    stage.transcript.figures["calls through proxies"] = str(len(calls))
    stage.transcript.figures["calls that failed"] = "0"


def lose_one_server(stage: HostedStage) -> None:
    transcript, ways = stage.transcript, parts.ways()
    doomed, spared = _held_ways()
    with transcript.step("open streams through two servers, and call again"):
        stage.start_callers("hold", HELD, {**doomed, **spared})
        through = stage.wait("all streams", lambda: _look_at_streams(stage, len(doomed), len(spared)))
        transcript.saw(f"{len(doomed)} by HTTPS proxy through {KILLED}; {len(spared)} by SOCKS proxy through others")
        transcript.saw(f"tunnels counted by the servers: {', '.join(f'{node} {n}' for node, n in through.items())}")
        stage.start_callers("call", LATER_CALLS, ways)
        stage.wait_for_calls(LATER_CALLS, ways, 0.0)
    with transcript.step(f"kill the server on {KILLED}"):
        killed = stage.signal(KILLED, SERVER, signal.SIGKILL)
        ended = stage.wait("streams through it to end", lambda: _look_at_ends(stage, len(doomed)))
        _check_ends(stage, killed, ended, set(doomed))
    with transcript.step("new requests succeed"):
        stage.wait_for_calls(LATER_CALLS, ways, time.monotonic())
        stage.stop_callers(LATER_CALLS)
        _check_later_calls(stage, killed)
        stage.lead_kube_apiserver([node for node in SERVER_NODES if node != KILLED])
        transcript.saw(stage.testbed.wait_for(CallResult.ALLOWED, "allow").text)
    with transcript.step("all other streams are still open"):
        stage.stop_callers(HELD)
        _check_spared(stage, killed, set(spared))


def _held_ways() -> tuple[dict[str, ProxyRoute], dict[str, ProxyRoute]]:
    """Routes through the HTTPS proxy, whose server is killed, and routes through the SOCKS proxy."""
    named = {f"{name}-{number}": way for name, way in parts.ways().items() for number in range(HELD_EACH)}
    spared = {name: way for name, way in named.items() if way.kind is ProxyProtocol.SOCKS5}
    return {name: way for name, way in named.items() if name not in spared}, spared


def _events(stage: HostedStage, moment: StreamMoment) -> list[StreamEvent]:
    return [one for one in read_events(stage.lab.log(CLIENT_NODE, HELD)) if one.moment == moment.value]


def _look_at_streams(stage: HostedStage, doomed: int, spared: int) -> dict[str, int]:
    opened, ended = _events(stage, StreamMoment.OPENED), _events(stage, StreamMoment.ENDED)
    if ended:
        raise NotYet(f"{ended[0].stream} ended: {ended[0].how}")
    through = {node: stage.open_tunnels(node) for node in SERVER_NODES}
    others = sum(count for node, count in through.items() if node != KILLED)
    # At least: DNS of the proxies and the aggregated API use tunnels too.
    if len(opened) < doomed + spared or through[KILLED] < doomed or others < spared:
        raise NotYet(f"{len(opened)} streams open, tunnels: {through}")
    return through


def _look_at_ends(stage: HostedStage, count: int) -> list[StreamEvent]:
    ended = _events(stage, StreamMoment.ENDED)
    if len(ended) < count:
        raise NotYet(f"{len(ended)} of {count} ended")
    return ended


def _check_ends(stage: HostedStage, killed: float, ended: Sequence[StreamEvent], doomed: set[str]) -> None:
    transcript, names_ended = stage.transcript, {one.stream for one in ended}
    if names_ended != doomed:
        wrong = ", ".join(sorted(names_ended ^ doomed))
        raise complaint("the streams that ended are not those of the killed server", wrong)
    if min(one.at for one in ended) < killed:
        raise complaint("a stream ended before its server was killed", _first(ended))
    seconds = max(one.at for one in ended) - killed
    transcript.figures["streams that ended"] = f"{len(ended)} of {len(ended) + HELD_EACH}"
    transcript.figures["last of them after"] = f"{seconds:.3f} s"
    transcript.saw(f"{len(ended)} streams ended, the last after {seconds:.3f} s")
    for how in sorted({one.how for one in ended}):
        transcript.saw(how)


def _check_later_calls(stage: HostedStage, killed: float) -> None:
    calls = stage.calls(LATER_CALLS)
    failed = [call for call in calls if call.failure]
    late = [call for call in failed if call.began > killed or call.ended < killed]
    if late:
        raise complaint("a call failed that was not running when the server was killed", _words(late[0]))
    after = [call for call in calls if call.began > killed]
    stage.transcript.saw(f"{len(after)} calls started after the kill, 0 failed")
    stage.transcript.saw(
        f"{len(failed)} calls that were running failed{''.join(f'; {_words(one)}' for one in failed[:1])}"
    )
    stage.transcript.figures["calls after the kill"] = str(len(after))


def _check_spared(stage: HostedStage, killed: float, spared: set[str]) -> None:
    lived = _events(stage, StreamMoment.LIVED)
    heard = {one.stream for one in lived if one.at > killed}
    if heard != spared:
        raise complaint("a stream through another server was lost", ", ".join(sorted(spared - heard)))
    stage.transcript.saw(f"{len(lived)} streams received data to the end")


def _first(events: Sequence[StreamEvent]) -> str:
    first = min(events, key=lambda one: one.at)
    return f"{first.stream}: {first.how}"


def _words(call: ProxiedCall) -> str:
    return f"{call.way} after {call.seconds:.3f} s: {call.failure}"
