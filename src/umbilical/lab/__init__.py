"""The lab: a Kubernetes cluster that is being installed, in namespaces on one Linux machine, with the real programs.

`keeper` is the one process that holds a lab's namespaces; when it ends, the kernel removes everything. All other
code runs outside and calls the keeper through `lab.Lab`. A scenario shows one use of the tunnel step by step; a
breakage breaks one thing and repairs it. May import every room; runs `umbilical` commands as users run them.
"""
