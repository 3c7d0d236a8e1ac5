"""A hosted control plane in a lab: its topology, its parts as processes, the stage of its scenario."""
