"""The real kubelet on a node, with its own containerd. The entry point is `runner.KubeletRunner`.

Images are built from this machine's programs; nothing is pulled. Needs root.
"""
