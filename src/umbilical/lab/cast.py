"""Who plays in a scene: which shape of the tunnel, whose server and agents, and whether the API server is real."""

from dataclasses import dataclass
from typing import Any, Final

from umbilical.bootstrap.spec import Shape
from umbilical.lab.images import KONNECTIVITY, UMBILICAL

OURS: Final = UMBILICAL
UPSTREAM: Final = KONNECTIVITY


@dataclass(frozen=True)
class Cast:
    shape: Shape = Shape.OPENSHIFT
    server_image: str = OURS
    agent_image: str = OURS
    is_stand_in: bool = False
    """No Kubernetes: a caller of ours asks the webhook in kube-apiserver's place."""

    def to_json(self) -> dict[str, Any]:
        return {
            "shape": self.shape.value,
            "serverImage": self.server_image,
            "agentImage": self.agent_image,
            "isStandIn": self.is_stand_in,
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Cast":
        return cls(Shape(content["shape"]), content["serverImage"], content["agentImage"], bool(content["isStandIn"]))
