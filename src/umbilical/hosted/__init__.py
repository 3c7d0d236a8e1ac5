"""A hosted control plane at work: its objects applied, its tunnel checked hop by hop."""
