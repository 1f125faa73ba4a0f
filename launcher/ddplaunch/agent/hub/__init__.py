"""The meeting place of a job's nodes: check-ins, mesh, heartbeats, evidence, verdict.

`server` owns sockets and authentication, the desks (`gate_desk`, `run_desk`) what is said, `record` what is
known and the files in which others read it, `hub` the process from its first to its last word. The hub must
outlive any node and any client: no message, however broken, and no client, however slow, may stop it. It
must not run anything of the job.
"""
