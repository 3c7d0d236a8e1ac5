"""THE MACHINE: files with modes, processes, network namespaces, and others over SSH. Imports nothing of ours.

Everything that touches disk or programs goes through here. Errors are `HostError`, three lines with a code.
"""
