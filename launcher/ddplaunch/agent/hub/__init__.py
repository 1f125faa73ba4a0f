"""The place where a job's nodes meet: check-ins, mesh, heartbeats, evidence, verdict.

`hub` is the process from start to end, and makes all other parts; `process` starts it again when it is
killed, and `recovery` reads what it left. `server` owns sockets and authentication. `gate` and `run` handle
the messages before and after the release; they alone decide, and ask `membership`, `liveness`, `stalls`,
`attempts` and `evidence` what has happened. `job_record` holds the job's state, and writes the files in which
others read the state. `closing` ends the job and knows who stops it from outside; `notify` tells nodes and
people about it.

The hub must outlive any node and any client: no message, however broken, and no client, however slow, may
stop it. It must not run anything of the job.
"""
