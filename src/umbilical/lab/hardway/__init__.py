"""Machines for the hard way, in namespaces: implements `hardway.machines.interface` and `hardway.site.SmokeTest`."""
