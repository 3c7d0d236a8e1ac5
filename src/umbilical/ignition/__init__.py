"""THE FORMAT: Ignition 3.x configs, data URLs, and edits that leave every other byte alone. Imports nothing of ours.

Pure: bytes in, bytes out. It knows files and units, and nothing of Kubernetes or of what the files are for.
"""
