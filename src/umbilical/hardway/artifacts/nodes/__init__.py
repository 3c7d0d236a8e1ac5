"""The Ignition config of each node: a base config, and the node's own files and units.

`render` combines them; every other module makes one kind of file. How a machine boots is not decided here.
"""
