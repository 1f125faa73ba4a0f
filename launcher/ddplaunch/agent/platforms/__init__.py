"""What differs between a local job, Slurm and Kubernetes: names, machines, logs, last words, hints.

It must not judge, and speaks with no hub.
"""
