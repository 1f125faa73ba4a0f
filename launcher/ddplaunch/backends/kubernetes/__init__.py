"""Jobs on a Kubernetes cluster, through its API server alone: no operator, no daemon, no access for the pods.

Only `api` uses the `kubernetes` client, which it imports at the first request. It also explains refusals, and
asks what the user may do. Pure modules: `objects` (how objects are named, found and read), `pods` (why a pod,
or a whole job, does not run), `node_status` (the phase of each node) and `outcomes` (how a job ended).
Modules that talk to the cluster: `submission` creates all of a job's objects or none; `queries` fetches them;
`snapshot` limits how often that is done; `pod_exec` runs a command in a pod; `output` reads the ranks' logs;
`evidence` reads the hub's status and bundle, and the logs of gates that do not reach the hub; `volume` reads
what ranks wrote; and `deletion` cancels and removes the job. `foreign_pods` and `foreign_evidence` look at
jobs that ddplaunch did not start, and `kubeconfig` says where a job would go. `record` keeps what this user
has sent, and `backend` is the Backend.
"""
