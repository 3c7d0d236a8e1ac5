"""THE FIREWALL: the rule for the agents' port, per platform and output form, and the probe of the port.

`platforms/` and `forms/` are pure. May import `manifests`, `checks`, `ignition` and `host`.
"""
