"""The node's side of the gate: its checks, the way to the hub, the paths to its peers.

It ends with the hub's one verdict for all nodes, or with its own when it could not reach the hub. It must
not decide anything that another node would have to know as well.
"""
