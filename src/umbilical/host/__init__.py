"""THE MACHINE: files with modes, processes, network namespaces. Imports nothing of ours."""
