"""Jobs on a Slurm cluster, through the commands that its users have: no daemon, no accounting needed.

`commands` runs them, with time limits. Pure modules: `parse` and `parse_json` (the output of the commands),
`pending` and `quotas` (why a job does not start), `limits` (which job can never start), `sbatch_errors` (why
sbatch refused a job) and `outcomes` (how a job ended). Modules that talk to Slurm: `submission` sends a file
once, `queries` fetches the state of jobs, `snapshot` limits how often, and `evidence` fetches the bundle.
`record` keeps what this user has sent, and `backend` is the Backend.

The job's hub writes its status into the job's folder. Slurm's state completes it, and stands alone where this
machine cannot see the folder.
"""
