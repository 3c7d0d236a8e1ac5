"""Renders every file of the tunnel from one spec: egress file, override, static pod, agents. Pure."""
