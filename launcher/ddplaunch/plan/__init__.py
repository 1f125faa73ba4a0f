"""JobSpec to Plan: what runs on each node, before any target's own words.

The only place that knows torchrun's flags. Pure: it must not look at this machine, its clock, its
environment or its network, since the job will run elsewhere.
"""
