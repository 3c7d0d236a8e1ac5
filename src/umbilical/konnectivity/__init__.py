"""RULES: what the Konnectivity protocol demands of a server and of an agent; events in, commands out.

Pure: no sockets, no clock, no randomness. Imports `wire` only. Sockets live in `tunnel`.
"""
