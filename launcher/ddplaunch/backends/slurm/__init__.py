"""Jobs on a Slurm cluster, through the commands that its users have: no daemon, no accounting needed.

`commands` runs them, with limits and patience. Pure modules: `parse` and `parse_json` (what the commands
print), `pending` and `quotas` (why a job does not start), `limits` (which job can never start),
`sbatch_errors` (why sbatch refused a job) and `outcomes` (what the end of a job means). The others ask:
`submission` sends a file, once, `queries` fetches the state of jobs, `snapshot` does so no more often than
needed, and `evidence` fetches what the hub knows. `record` keeps what this user has sent, and `backend` is
the Backend.

What the job itself knows lies in its folder, written by its hub. What Slurm says comes on top of that, and
is all there is where the folder cannot be seen.
"""
