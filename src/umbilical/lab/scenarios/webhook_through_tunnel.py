"""A webhook in a pod that the bootstrap API server cannot reach, then reaches through the tunnel.

Follows the eight steps of a manual validation on a real cluster: server, socket and port; agents; a webhook; calls;
a production API server beside it; teardown; nothing left; production still works.
"""

import statistics
from dataclasses import replace
from typing import Final

from umbilical.bootstrap.spec import Shape
from umbilical.lab.scenarios.scenario import Scenario
from umbilical.lab.testbed import Testbed, WebhookVerdict
from umbilical.lab.topology import Family
from umbilical.lab.transcript import CallResult
from umbilical.lab.tunnel_parts import OURS, UPSTREAM, ScenarioOptions

CALLS: Final = 50


def run(testbed: Testbed) -> None:
    prepare(testbed)
    show_need(testbed)
    set_up_tunnel(testbed)
    show_calls(testbed)


def end(testbed: Testbed) -> None:
    remove_tunnel(testbed)
    show_end(testbed)


def prepare(testbed: Testbed) -> None:
    """Start everything but the tunnel."""
    start_cluster(testbed)
    with testbed.transcript.step("a webhook in a pod, failurePolicy Fail"):
        testbed.transcript.shows(webhook=testbed.start_webhook())


def start_cluster(testbed: Testbed) -> None:
    transcript = testbed.transcript
    with transcript.step("control plane on the bootstrap node"):
        testbed.start_control_plane()
        shown = (testbed.lab.topology.bootstrap, *testbed.members)
        transcript.shows(nodes=tuple(node.name for node in shown), apiserver=True)
    with transcript.step(f"{len(testbed.members)} nodes join"):
        testbed.start_nodes()


def show_need(testbed: Testbed) -> None:
    transcript = testbed.transcript
    with transcript.step(f"without the tunnel {testbed.caller} is blocked"):
        _saw(testbed, testbed.wait_for(CallResult.UNREACHABLE, "allow"))
    if testbed.has_production:
        with transcript.step("a production kube-apiserver on a master reaches the webhook directly"):
            testbed.start_production()
            transcript.shows(production_apiserver=True)
            _saw(testbed, testbed.wait_for(CallResult.DENIED, "deny", production=True), production=True)


def set_up_tunnel(testbed: Testbed) -> None:
    transcript = testbed.transcript
    with transcript.step("the server's static pod, its socket and port"):
        testbed.make_tunnel()
        pod = testbed.start_server()
        transcript.saw(f"{pod.namespace}/{pod.name} runs {pod.containers[0].image}")
        transcript.saw(testbed.server_socket())
        transcript.shows(server=True)
    with transcript.step("agents on every node connect to the server"):
        testbed.start_agents()
        agents = testbed.wait_for_agents()
        transcript.saw(f"connected: {', '.join(agents)}")
        transcript.shows(agents=tuple(agents))
        transcript.figures["agents"] = str(len(agents))
    with transcript.step(f"{testbed.caller} is configured to use the tunnel"):
        testbed.use_tunnel()


def show_calls(testbed: Testbed) -> None:
    transcript = testbed.transcript
    with transcript.step("through the tunnel the webhook allows a request"):
        _saw(testbed, testbed.wait_for(CallResult.ALLOWED, "allow"))
    with transcript.step("through the tunnel the webhook denies a request"):
        _saw(testbed, testbed.wait_for(CallResult.DENIED, "deny"))
    with transcript.step(f"{CALLS} calls"):
        before = testbed.tunnel_bytes()
        seconds = testbed.call_times(CALLS)
        carried = testbed.tunnel_bytes() - before
        transcript.figures["calls"] = str(len(seconds))
        transcript.figures["bytes over the agents' port"] = f"{carried:,}"
        transcript.figures["p50"] = f"{statistics.median(seconds) * 1000:.1f} ms"
        transcript.saw(f"{len(seconds)} calls, p50 {statistics.median(seconds) * 1000:.1f} ms, {carried:,} bytes")
    if testbed.has_production:
        with transcript.step("production still reaches the webhook directly"):
            _saw(testbed, testbed.wait_for(CallResult.DENIED, "deny", production=True), production=True)


def remove_tunnel(testbed: Testbed) -> None:
    transcript = testbed.transcript
    with transcript.step(f"the tunnel is removed: {testbed.cutter}"):
        for line in testbed.teardown().splitlines():
            transcript.saw(line)
        transcript.shows(server=False, agents=())
    with transcript.step("nothing of the tunnel is left"):
        testbed.wait_until_nothing_is_left()
        transcript.saw("no server, no agent, no object, no key, no socket, and the port is closed")


def show_end(testbed: Testbed) -> None:
    """Show that production works on its own; without production, that calls fail as before."""
    transcript = testbed.transcript
    if not testbed.has_production:
        with transcript.step("without the tunnel calls fail as before"):
            _saw(testbed, testbed.wait_for(CallResult.UNREACHABLE, "allow"))
        return
    with transcript.step("the bootstrap kube-apiserver stops, production still works"):
        testbed.retire_bootstrap()
        transcript.shows(apiserver=False, call=CallResult.NONE)
        _saw(testbed, testbed.wait_for(CallResult.ALLOWED, "allow", production=True), production=True)


def _saw(testbed: Testbed, verdict: WebhookVerdict, *, production: bool = False) -> None:
    testbed.transcript.saw(verdict.text)
    if production:
        testbed.transcript.shows(production_call=verdict.call)
    else:
        testbed.transcript.shows(call=verdict.call)


def run_mix(testbed: Testbed) -> None:
    """Upstream's server with our agents, then our server with upstream's agents, on one control plane."""
    prepare(testbed)
    show_need(testbed)
    _run_pair(testbed, UPSTREAM, OURS)
    remove_tunnel(testbed)
    _run_pair(testbed, OURS, UPSTREAM)


def _run_pair(testbed: Testbed, server: str, agent: str) -> None:
    testbed.change_options(replace(testbed.options, server_image=server, agent_image=agent))
    testbed.transcript.shows(call=CallResult.NONE)
    set_up_tunnel(testbed)
    show_calls(testbed)


SCENARIOS: Final = (
    Scenario(
        "webhook-through-tunnel",
        "a webhook is unreachable without the tunnel and answers through it; then teardown",
        run,
        end,
        has_stand_in=True,
    ),
    Scenario(
        "seed-shape",
        "the same with the shape `seed`: HTTP CONNECT, kube-system, host network",
        run,
        end,
        options=ScenarioOptions(Shape.SEED),
    ),
    Scenario(
        "upstream-mix",
        "the same with upstream's server and our agents, then the reverse",
        run_mix,
        end,
        programs=("proxy-server", "proxy-agent"),
    ),
    Scenario("ipv6", "the same with IPv6 only", run, end, family=Family.IPV6),
)
