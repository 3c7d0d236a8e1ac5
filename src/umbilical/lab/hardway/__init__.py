"""Machines for the hard way, in namespaces: fulfils `hardway.machines.interface` and `hardway.trial`."""
