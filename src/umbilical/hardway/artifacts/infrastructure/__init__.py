"""The infrastructure around the nodes: load balancer, DNS, virtual machines, and settings of their host."""
