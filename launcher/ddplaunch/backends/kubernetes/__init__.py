"""Jobs on a Kubernetes cluster, through its API server alone: no operator, no daemon, no access for the pods.

`api` is the one module that knows the `kubernetes` client, and imports it at the first request. Pure
modules: `objects` and `object_schema` (how objects are named, found and read), `api_errors` (why a request
was refused), `pods` and `pending` (why a pod, or a whole job, does not run), `node_status` (how each node
stands) and `outcomes` (what the end of a job means). The others talk to the cluster: `access` asks what the
user may do, `submission` sends a file, all of it or nothing, `queries` fetches the job's objects,
`snapshot` does so no more often than needed, `pod_exec` runs a command in a pod, `output` reads the ranks'
logs, `gate_reports` the logs of gates that do not reach the hub, `evidence` what the hub knows, and
`deletion` removes the job. `record` keeps what a cluster forgets, and `backend` is the Backend.
"""
