"""Gate and supervisor in a manifest or batch script that another controller runs: text in, text out. Pure.

`document` reads YAML with the place of each value, `edits` changes text at these places and nowhere else, so
that comments and layout stay. `pod` adds the agent to a pod; `job`, `jobset`, `pytorchjob` and `volcano` know
one kind each: which pods it starts, and where `run --join` gets number, rank and master from. `sbatch` does
the same for a batch script. `change` is the entry. Nothing here reads a file, and nothing is guessed: what a
module does not understand it refuses.
"""
