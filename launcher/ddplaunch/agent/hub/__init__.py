"""The place where a job's nodes meet: check-ins, mesh, heartbeats, evidence, verdict.

`hub` is the process from start to end, and makes all the others. `process` starts it again when it is killed,
and `recovery` reads what it left. `server` owns the sockets and authenticates clients. `gate` and `run`
handle the messages before and after the release. They alone decide, and ask `membership`, `elastic`,
`liveness`, `stalls`, `attempts`, `evidence` and `stopping` what has happened. `job_record` holds the job's
state and writes the files in which others read it. `closing` and `notify` tell the nodes and the user how the
job ended.

The hub must outlive any node and any client: no message, however broken, and no client, however slow, may
stop it. It must not run anything of the job.
"""
