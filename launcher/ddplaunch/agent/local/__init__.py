"""Runs all nodes of a job on one machine: the process that starts and outlives them."""
