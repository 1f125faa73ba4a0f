"""JobSpec to Plan: what runs on each node, before any target's own words.

What every node is told follows from the job file in `agent.job_file`; here are the files that travel with
it, and what each target adds. Pure: it must not look at this machine, its clock, its environment or its
network, since the job will run elsewhere.
"""
