"""THE MACHINE: files with modes, processes, network namespaces, and other machines over SSH. Imports nothing of ours.

Every access to disk or programs goes through here. Errors are `HostError`, three lines with a code.
"""
