"""What lies around the nodes: load balancer, names, virtual machines, and what the host of it all must let through."""
