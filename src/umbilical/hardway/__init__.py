"""The hard way: builds a cluster stage by stage, as one would by hand, and reports its progress.

`config/`, `artifacts/`, `lint/` and `explain/` are pure: from one typed file they make explained and checked files. The
rest writes them, controls machines through `machines.interface`, calls the API and keeps the record. It never imports
the lab's machines: `cli` passes them in. May import `bootstrap` and the shared rooms below the subjects.
"""
