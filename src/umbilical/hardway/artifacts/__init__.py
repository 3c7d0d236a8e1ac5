"""What the hard way makes of one typed file: certificates, kubeconfigs, static pods, manifests, Ignition; pure."""
