"""`run --join`: nodes that the user or a scheduler starts. Each works out its number and joins the others.

`spot` works out node rank, number of nodes and master from options, the launcher's arguments (`launchers`)
and the variables of schedulers; both are pure. `key` gets the secret by which the nodes authenticate, on
Slurm through MUNGE (`munge`). `prepare` makes a plan of all this, which `agent.local` runs for this one node.
"""
