"""The meeting place of a job's nodes: check-ins, mesh, heartbeats, evidence, verdict.

`server` owns sockets and authentication. `gate_session` and `run_session` handle the messages before and
after the gate. `job_record` holds the job's state and writes the files in which others read it. `hub` is
the process from start to end. The hub must outlive any node and any client: no message, however broken, and
no client, however slow, may stop it. It must not run anything of the job.
"""
