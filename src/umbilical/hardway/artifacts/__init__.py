"""Renders a cluster's artifacts: certificates, kubeconfigs, static pods, manifests, Ignition; pure."""
