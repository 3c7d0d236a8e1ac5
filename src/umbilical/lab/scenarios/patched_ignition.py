"""From an installer's bootstrap.ign to a tunnel that comes and goes by itself: patched, booted, used, cut."""

from typing import Final

from umbilical.lab.binaries import KONNECTIVITY
from umbilical.lab.cast import UPSTREAM, Cast
from umbilical.lab.patched_scene import STAND_INS, PatchedScene
from umbilical.lab.scenarios.scenario import Scenario
from umbilical.lab.scene import Scene
from umbilical.lab.story import Call


def tell(scene: Scene) -> None:
    patched = PatchedScene(scene.lab, scene.cast, scene.story)
    patched.check_machine()
    boot(patched)
    watch_tunnel_come(patched)
    show_calls(patched)
    watch_tunnel_go(patched)


def boot(scene: PatchedScene) -> None:
    story = scene.story
    with story.step("an installer's bootstrap.ign"):
        config = scene.write_config()
        story.saw(f"{config.name}, {config.stat().st_size:,} bytes, with a bootkube.sh as of 4.18")
        for line in STAND_INS:
            story.saw(f"stands in {line}")
    with story.step("umbilical bootstrap patch, and verify"):
        config, said = scene.patch(config)
        for line in said:
            story.saw(line)
    with story.step("the bootstrap node boots from it"):
        story.saw(scene.boot(config))


def watch_tunnel_come(scene: PatchedScene) -> None:
    story = scene.story
    with story.step("the script makes certificates on the node, by openssl"):
        story.saw(scene.wait_for_certificates())
    with story.step("the server's static pod, its socket and port"):
        pod = scene.wait_for_server()
        story.saw(f"{pod.namespace}/{pod.name} runs {pod.containers[0].image}")
        story.saw(scene.server_socket())
        story.shows(server=True)
    with story.step("kube-apiserver starts with the egress file that the script laid"):
        story.saw(scene.wait_for_api())
        story.shows(apiserver=True)
    with story.step("nodes join"):
        scene.start_nodes()
    with story.step("agents come with the cluster's manifests and dial back"):
        agents = scene.wait_for_agents()
        story.saw(f"connected: {', '.join(agents)}")
        story.shows(agents=tuple(agents))
        story.figures["agents"] = str(len(agents))


def show_calls(scene: PatchedScene) -> None:
    story = scene.story
    with story.step("a webhook in a pod, failurePolicy Fail"):
        story.shows(webhook=scene.start_webhook())
    with story.step("through the tunnel it allows, and denies by its own word"):
        for wanted, verdict in ((Call.ALLOWED, "allow"), (Call.DENIED, "deny")):
            seen = scene.wait_for(wanted, verdict)
            story.saw(seen.text)
            story.shows(call=seen.call)


def watch_tunnel_go(scene: PatchedScene) -> None:
    story = scene.story
    with story.step("a control plane on a master takes over"):
        scene.start_production()
        story.shows(production_apiserver=True)
    with story.step("the script cuts the tunnel by itself, and ends"):
        for stage in scene.release_script():
            story.saw(f"{stage.name}: {stage.result}")
        story.shows(server=False, agents=(), apiserver=False, call=Call.NONE)
    with story.step("nothing of the tunnel is left"):
        scene.wait_until_nothing_is_left()
        story.saw("no server, no agent, no object, no key, no socket, and the port is closed")
    with story.step("production reaches the webhook directly"):
        seen = scene.wait_for(Call.DENIED, "deny", production=True)
        story.saw(seen.text)
        story.shows(production_call=seen.call)


SCENARIOS: Final = (
    Scenario(
        "patched-ignition",
        "a patched bootstrap.ign boots a node, and its own script brings the tunnel up and cuts it",
        tell,
        # What the release payload has, as on a real node.
        cast=Cast(server_image=UPSTREAM, agent_image=UPSTREAM),
        programs=KONNECTIVITY,
        masters=2,
        workers=1,
    ),
)
