"""The node's side of the gate: local checks, the way to the hub, the mesh, and what a person reads of it.

It ends with the hub's one verdict for all nodes, or with its own when it could not reach the hub. It must
not decide anything that another node would have to know as well.
"""
