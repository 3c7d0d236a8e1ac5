"""Breakages: the lab breaks one thing, waits until the product reports it with a code, and repairs it."""
