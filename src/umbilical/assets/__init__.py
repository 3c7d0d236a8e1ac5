"""FILE TREES: one typed spec in, files with modes out; and the rules by which such trees are judged.

Pure: nothing is read from or written to disk here, nothing is run. May import `ignition`, `checks` and `pki`.
"""
