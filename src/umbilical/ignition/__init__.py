"""THE FORMAT: Ignition 3.x configs, data URLs, and edits that keep every other byte. Imports nothing of ours.

Pure: bytes in, bytes out. It handles files and units, and knows nothing of Kubernetes.
"""
