"""Taking away what was there for a while only: as the artifact says that the lint has read, and no other way."""

from umbilical.cluster import objects
from umbilical.fault import HardwayError
from umbilical.hardway.artifacts.static_pods.removals import PATH, Removal, read_removals
from umbilical.hardway.kube import delete_if_there
from umbilical.hardway.machines.interface import Power
from umbilical.hardway.site import Site


def removal(site: Site, what: str) -> Removal | None:
    """Find how something is removed; None where there is nothing of it.

    Raises:
        HardwayError: UMB760, the artifact cannot be read.
    """
    try:
        steps = read_removals(site.content(PATH))
    except ValueError as error:
        raise HardwayError("UMB760", f"{PATH} cannot be read", str(error), "umbilical stage run 07") from None
    return next((step for step in steps if step.what == what), None)


def remove(site: Site, step: Removal) -> None:
    """Delete the namespace, then files on nodes, then run what has to follow. Doing it twice is fine.

    Raises:
        HardwayError: UMB761, a command on a node failed.
    """
    if step.namespace:
        site.api().call(lambda client: delete_if_there(client, objects.NAMESPACE, step.namespace))
    for node, path in step.files:
        if site.machines.power(node) is Power.ON:
            _run(site, node, ["rm", "-f", path])
    for node, words in step.commands:
        _run(site, node, words)


def _run(site: Site, node: str, words: "list[str] | tuple[str, ...]") -> None:
    done = site.machines.run(node, words)
    if done.exit_code != 0:
        raise HardwayError("UMB761", f"{words[0]} failed on {node}", done.complaint, f"there: {' '.join(words)}")
