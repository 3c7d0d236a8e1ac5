"""What makes a machine a node: the Ignition config of each, from a base and what is the node's own.

`render` puts it together; every other module makes one kind of file. Nothing here knows how a machine is booted.
"""
