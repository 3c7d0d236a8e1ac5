"""Finds why a bootstrap failed, from a log bundle: reads it once as a stream, collects facts, runs checks. A bundle is
not trusted: all reads have limits, and nothing of it is run or unpacked."""
