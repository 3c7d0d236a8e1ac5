"""What the hard way makes of one typed file: certificates, kubeconfigs, static pods, manifests, Ignition files.

Each is explained and judged beside what makes it. Pure like the rest of this room; the pipeline that lays it all out
is `umbilical.hardway`.
"""
