"""The real kubelet on a node, over a containerd of its own. `runner.KubeletRunner` is the face of it.

Images are made here from what is on the machine, and pulled from nowhere. Needs root.
"""
