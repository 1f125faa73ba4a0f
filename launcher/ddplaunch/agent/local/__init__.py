"""Runs all nodes of a job on one machine, in the process that starts and outlives them."""
