"""Machines as the stages need them: the interface, and libvirt's."""
