"""A hosted control plane in a lab: topology, parts as processes, and the testbed of its scenario."""
