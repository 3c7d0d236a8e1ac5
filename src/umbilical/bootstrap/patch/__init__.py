"""Adds the tunnel to an installer's bootstrap config, and removes it."""
