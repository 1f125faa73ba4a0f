"""Jobs on a Kubernetes cluster, through its API server alone: no operator, no daemon, no access for the pods.

`api` alone uses the `kubernetes` client, which it imports at the first request. Pure modules: `objects` and
`object_schema` (how objects are named, found and read), `api_errors` (why a request was refused), `pods` and
`missing_pods` (why a pod, or a whole job, does not run), `node_status` (the phase of each node) and
`outcomes` (how a job ended). Modules that talk to the cluster: `access` asks what the user may do,
`submission` creates all of a job's objects or none, `queries` fetches them, `snapshot` limits how often,
`pod_exec` runs a command in a pod, `output` reads the ranks' logs, `gate_reports` the logs of gates that do
not reach the hub, `evidence` the hub's status and bundle, and `deletion` removes the job. `record` keeps what
this user has sent, and `backend` is the Backend.
"""
