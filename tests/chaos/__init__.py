"""Chaos: random jobs are hit by random injuries, and an oracle says whether what came of it was right.

`scenario` draws a job and its injuries from one seed, `jobs` writes the job, `injuries` finds and hits
processes, `play` lets both run on a backend (`local`, `slurm`, `kubernetes`), `oracle` judges the facts, and
`table` counts. Run by `make chaos`; docs/reference/chaos.md holds what came of it.
"""
