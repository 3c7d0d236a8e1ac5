"""THE FIREWALL: the one port for agents, per platform and in every form, and the probe that tries it.

`platforms/` and `forms/` are pure. May import `manifests`, `checks`, `ignition` and `host`.
"""
