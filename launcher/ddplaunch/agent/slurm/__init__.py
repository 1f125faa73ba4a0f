"""Programs of a Slurm node: prolog, epilog, and the gate for a batch script that is not ours.

Prolog and epilog run as root, without PATH and HOME, at every start and end of a job on a node. They send no
request to Slurm's daemons, which thousands of nodes would overload. A check that cannot tell never takes a
node out of service.
"""
