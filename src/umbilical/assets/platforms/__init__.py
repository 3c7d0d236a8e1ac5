"""What differs per platform: the firewall rule that lets agents in, and when it goes away."""
