"""Jobs on a Kubernetes cluster, through its API server alone: no operator, no daemon, no access for the pods.

`api` is the one module that knows the `kubernetes` client, and imports it at the first request. Pure are
`objects`, how things are named and found; `refusals`, why a request was turned down; `pods` and `waits`,
why a pod or a whole job does not run; `standing`, where every node is; `states`, what the end of a job
means. `access` asks what may be done here, `submission` sends a file, all of it or nothing; `queries`
fetches what is to be seen of a job, `look` no more often than needed; `inside` runs a word in a pod;
`output` brings the logs, `cries` what gates say there that reach nobody, `evidence` what the job knows of
itself; `removal` takes it away; `record` remembers what is gone; `backend` makes
them one Backend.
"""
