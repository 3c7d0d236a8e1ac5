"""The whole story: a webhook in a pod, a bootstrap API server that cannot reach it, and a tunnel that comes and goes.

The eight steps of a manual validation on a real cluster, in order: server, socket and port; agents; a webhook; calls;
a production API server beside it; teardown; nothing left; production still well.
"""

import statistics
from dataclasses import replace
from typing import Final

from umbilical.bootstrap.spec import Shape
from umbilical.lab.scenarios.scenario import Scenario
from umbilical.lab.scene import Scene, Verdict
from umbilical.lab.story import Call
from umbilical.lab.topology import Family
from umbilical.lab.tunnel_parts import OURS, UPSTREAM, Cast

CALLS: Final = 50


def tell(scene: Scene) -> None:
    set_stage(scene)
    show_need(scene)
    lay_tunnel(scene)
    show_calls(scene)


def end(scene: Scene) -> None:
    cut(scene)
    leave(scene)


def set_stage(scene: Scene) -> None:
    """Bring up everything but the tunnel."""
    start_cluster(scene)
    with scene.story.step("a webhook in a pod, failurePolicy Fail"):
        scene.story.shows(webhook=scene.start_webhook())


def start_cluster(scene: Scene) -> None:
    story = scene.story
    with story.step("control plane on the bootstrap node"):
        scene.start_control_plane()
        shown = (scene.lab.topology.bootstrap, *scene.members)
        story.shows(nodes=tuple(node.name for node in shown), apiserver=True)
    with story.step(f"{len(scene.members)} nodes join"):
        scene.start_nodes()


def show_need(scene: Scene) -> None:
    story = scene.story
    with story.step(f"without the tunnel {scene.caller} is blocked"):
        _saw(scene, scene.wait_for(Call.UNREACHABLE, "allow"))
    if scene.has_production:
        with story.step("a production kube-apiserver on a master reaches the webhook directly"):
            scene.start_production()
            story.shows(production_apiserver=True)
            _saw(scene, scene.wait_for(Call.DENIED, "deny", production=True), production=True)


def lay_tunnel(scene: Scene) -> None:
    story = scene.story
    with story.step("the server's static pod, its socket and port"):
        scene.make_tunnel()
        pod = scene.start_server()
        story.saw(f"{pod.namespace}/{pod.name} runs {pod.containers[0].image}")
        story.saw(scene.server_socket())
        story.shows(server=True)
    with story.step("agents on every node dial back"):
        scene.start_agents()
        agents = scene.wait_for_agents()
        story.saw(f"connected: {', '.join(agents)}")
        story.shows(agents=tuple(agents))
        story.figures["agents"] = str(len(agents))
    with story.step(f"{scene.caller} is told to use it"):
        scene.use_tunnel()


def show_calls(scene: Scene) -> None:
    story = scene.story
    with story.step("through the tunnel the webhook allows"):
        _saw(scene, scene.wait_for(Call.ALLOWED, "allow"))
    with story.step("and denies, by its own word"):
        _saw(scene, scene.wait_for(Call.DENIED, "deny"))
    with story.step(f"{CALLS} calls"):
        before = scene.tunnel_bytes()
        seconds = scene.call_times(CALLS)
        carried = scene.tunnel_bytes() - before
        story.figures["calls"] = str(len(seconds))
        story.figures["bytes over the agents' port"] = f"{carried:,}"
        story.figures["p50"] = f"{statistics.median(seconds) * 1000:.1f} ms"
        story.saw(f"{len(seconds)} calls, p50 {statistics.median(seconds) * 1000:.1f} ms, {carried:,} bytes")
    if scene.has_production:
        with story.step("production still reaches it directly"):
            _saw(scene, scene.wait_for(Call.DENIED, "deny", production=True), production=True)


def cut(scene: Scene) -> None:
    story = scene.story
    with story.step(f"the cut: {scene.cutter}"):
        for line in scene.teardown().splitlines():
            story.saw(line)
        story.shows(server=False, agents=())
    with story.step("nothing of the tunnel is left"):
        scene.wait_until_nothing_is_left()
        story.saw("no server, no agent, no object, no key, no socket, and the port is closed")


def leave(scene: Scene) -> None:
    """What remains is the cluster itself; without a production API server, the old state."""
    story = scene.story
    if not scene.has_production:
        with story.step("without the tunnel it is as before"):
            _saw(scene, scene.wait_for(Call.UNREACHABLE, "allow"))
        return
    with story.step("the bootstrap kube-apiserver goes, production is still well"):
        scene.retire_bootstrap()
        story.shows(apiserver=False, call=Call.NONE)
        _saw(scene, scene.wait_for(Call.ALLOWED, "allow", production=True), production=True)


def _saw(scene: Scene, verdict: Verdict, *, production: bool = False) -> None:
    scene.story.saw(verdict.text)
    if production:
        scene.story.shows(production_call=verdict.call)
    else:
        scene.story.shows(call=verdict.call)


def tell_mix(scene: Scene) -> None:
    """Upstream's server with our agents, then our server with upstream's agents, on one control plane."""
    set_stage(scene)
    show_need(scene)
    _tell_pair(scene, UPSTREAM, OURS)
    cut(scene)
    _tell_pair(scene, OURS, UPSTREAM)


def _tell_pair(scene: Scene, server: str, agent: str) -> None:
    scene.recast(replace(scene.cast, server_image=server, agent_image=agent))
    scene.story.shows(call=Call.NONE)
    lay_tunnel(scene)
    show_calls(scene)


SCENARIOS: Final = (
    Scenario(
        "webhook-through-tunnel",
        "blocked without the tunnel, allowed and denied through it, nothing left after the cut",
        tell,
        end,
        has_stand_in=True,
    ),
    Scenario(
        "seed-shape",
        "the same with the tunnel as first planned: HTTP CONNECT, kube-system, host network",
        tell,
        end,
        cast=Cast(Shape.SEED),
    ),
    Scenario(
        "upstream-mix",
        "the same with upstream's server and our agents, then the other way round",
        tell_mix,
        end,
        programs=("proxy-server", "proxy-agent"),
    ),
    Scenario("ipv6", "the same with nodes, pods and services on IPv6 alone", tell, end, family=Family.IPV6),
)
