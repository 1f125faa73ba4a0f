"""Programs of a Slurm node: prolog, epilog, and the gate for a batch script that is not ours.

The first two run as root, without PATH and HOME, at every start and end of a job on a node. They ask no
daemon of Slurm, which would multiply by the nodes; what they cannot tell never takes a node out of service.
"""
