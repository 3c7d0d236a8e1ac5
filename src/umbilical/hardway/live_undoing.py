"""The inverses of what the stages on a live cluster do, by the names under which the record has them."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from umbilical.hardway.site import Site
from umbilical.hardway.stages import s12_control_plane, s13_pivot

LIVE_UNDOERS: Final[Mapping[str, Callable[[Site, Mapping[str, Any]], None]]] = {
    s12_control_plane.REMOVE_MEMBER: lambda site, values: s12_control_plane.undo_member(site, values["node"]),
    s12_control_plane.WITHDRAW_POD: lambda site, values: s12_control_plane.undo_pod(
        site, values["node"], values["file"], values.get("data", "")
    ),
    s13_pivot.DELETE_MARK: lambda site, values: s13_pivot.unmark(site),
}
