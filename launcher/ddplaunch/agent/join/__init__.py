"""`run --join`: nodes that somebody else starts. Each finds out its number and joins the others.

`spot` works out node rank, number of nodes and master from options, the launcher's own words and the
variables of schedulers; `launchers`, `torchrun` and `hostlist` read what those write. `key` gets the secret
by which the nodes know one another, on Slurm through MUNGE (`munge`). `prepare` makes a plan of all this,
which `agent.local` then runs for this one node. `spot`, `launchers`, `torchrun` and `hostlist` are pure.
"""
