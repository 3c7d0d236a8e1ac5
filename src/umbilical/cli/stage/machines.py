"""Who runs the machines of a cluster: introduces the lab or libvirt to the pipeline, which knows neither."""

from pathlib import Path
from typing import Final

from umbilical.hardway.config.cluster import Cluster, MachinesKind
from umbilical.hardway.machines.interface import Machines
from umbilical.hardway.trial import Trial

LAB: Final = Path(".umbilical", "lab")
"""Below the cluster's directory."""


def machines_for(cluster: Cluster, folder: Path) -> Machines:
    """Return the machines that the config asks for; nothing is made or looked at yet."""
    # Neither at the top: pyroute2 and its like are needed by whoever has a lab.
    if cluster.machines is MachinesKind.LIBVIRT:
        from umbilical.hardway.machines.libvirt.machines import LibvirtMachines

        return LibvirtMachines(cluster, folder)
    from umbilical.lab.hardway.machines import LabMachines

    return LabMachines(folder / LAB, cluster.name)


def trial_for(cluster: Cluster) -> Trial | None:
    """Return the service by which a cluster is tried; the lab has an image for one, others have none that is known."""
    if cluster.machines is not MachinesKind.LAB:
        return None
    from umbilical.lab.hardway.trial import LabTrial

    return LabTrial()
