"""Jobs on a Slurm cluster, through the commands that its users have: no daemon, no accounting needed.

`commands` runs them, with limits and patience. Pure are `parse` and `parse_json`, which read what they print,
`pending` and `quotas`, why a job does not start, `limits`, what can never start, `refusals`, why sbatch would
not have it, and `states`, what Slurm's word for a job means. `submission` sends a file, once; `record`
remembers what this user has sent; `queries` asks Slurm how jobs stand, `look` no more often than needed;
`evidence` fetches what is known of a job; `backend` makes them one Backend.

What the job itself knows lies in its folder, written by its hub. What Slurm says comes on top of that, and
is all there is where the folder cannot be seen.
"""
