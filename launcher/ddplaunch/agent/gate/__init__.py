"""The node's side of the gate: its checks, its connection to the hub, the paths to its peers.

The gate ends with the hub's one verdict for all nodes, or with its own when it cannot reach the hub. It must
not decide anything that another node would have to know as well.
"""
