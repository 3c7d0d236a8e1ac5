"""What differs per platform: the firewall rule for agents, who creates it, and when it is removed.

One module per platform, each with a `PLATFORM`; `catalogue` has them all by name.
"""
