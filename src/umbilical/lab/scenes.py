"""Which kind of scene a cast plays in: with the real kube-apiserver, or with its stand-in."""

import json
from typing import TYPE_CHECKING

from umbilical.fault import LabError
from umbilical.lab.cast import Cast
from umbilical.lab.scene import Scene
from umbilical.lab.story import Story

if TYPE_CHECKING:
    from umbilical.lab.lab import Lab


def make_scene(lab: "Lab", cast: Cast, story: Story) -> Scene:
    if cast.is_stand_in:
        from umbilical.lab.stand_in_scene import StandInScene

        return StandInScene(lab, cast, story)
    from umbilical.lab.kubernetes_scene import KubernetesScene

    return KubernetesScene(lab, cast, story)


def load_scene(lab: "Lab", story: Story) -> Scene:
    """Take up the scene of a kept lab.

    Raises:
        LabError: nothing was played in it yet.
    """
    try:
        content = json.loads(lab.directory.scene_file.read_bytes())
    except FileNotFoundError:
        why = "there are networks and nodes, and nothing was played on them"
        raise LabError("UMB851", "there is no tunnel in this lab", why, "umbilical lab run --keep NAME") from None
    scene = make_scene(lab, Cast.from_json(content["cast"]), story)
    scene.restore(content["tunnel"])
    return scene
