"""The hard way: builds a cluster stage by stage, as one would by hand, and can be asked at any time how far it is.

"Kubernetes The Hard Way" is what people call it when no installer hides the work. The artifacts come from `assets`;
this room writes them, moves machines through `machines.Machines`, talks to the API and keeps the record. It never
imports a kind of machines: `cli` introduces the lab's or libvirt's.
"""
