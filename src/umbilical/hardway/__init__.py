"""THE HARD WAY: builds a cluster stage by stage, as one would by hand, and shows at any time how far it is.

`config/`, `artifacts/`, `lint/` and `explain/` are pure: one typed file in, explained and judged files out. The rest
writes them, moves machines through `machines.interface`, talks to the API and keeps the record. It never imports the
lab's machines: `cli` introduces them. May import `bootstrap` and what stands under the subjects.
"""
