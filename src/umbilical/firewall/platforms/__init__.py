"""What differs per platform: the firewall rule that lets agents in, who makes it, and when it goes away.

One module per platform, each with a `PLATFORM`; `catalogue` has them all by name.
"""
