"""One manifest: the job's files, its names, and an Indexed Job (or a JobSet) of equal pods.

It needs no operator and no API access from the pods, and says the same for 2 nodes and for 2000.
"""

from __future__ import annotations

from dataclasses import replace

from ddplaunch.agent.job_file import kubernetes
from ddplaunch.plan.kubernetes import KubernetesPlan
from ddplaunch.plan.plan import Plan
from ddplaunch.render import Rendered, RenderedFile
from ddplaunch.render.kubernetes import objects, overlay, pod, text

_ROOM = 50
"""Characters of a job's name, as in a job file: Kubernetes makes longer ones of it."""
_KEY = (
    "no file holds the job's key: `submit` makes one, in the Secret {job}-key. By hand, before the job is "
    "applied: `head -c 32 /dev/urandom | base64 | kubectl create secret generic {job}-key{namespace} "
    "--from-file=key=/dev/stdin`. Without it the key is the Job's uid, which whoever may list pods can read."
)
_ROLE = (
    "its Events need a right, once in a namespace: `kubectl create role events{namespace} --verb=create "
    "--resource=events.events.k8s.io`, and `kubectl create rolebinding events{namespace} --role=events "
    "--serviceaccount={account}`"
)


def render(plan: Plan, *, gate_only: bool = False) -> Rendered:
    """Return the manifest. Same plan, same bytes.

    The Service comes before the pods whose names it publishes.
    """
    options = plan.settings(KubernetesPlan).options
    workload = objects.jobset if options.jobset else objects.job
    template = overlay.overlaid(pod.template(plan, gate_only=gate_only), options.pod_template, plan.job.job)
    made = [
        objects.config_map(plan),
        objects.service(plan),
        *objects.network_policies(plan),
        workload(plan, template),
    ]
    name = f"{plan.job.job}.yaml"
    content = text.documents(made).encode()
    # kubectl's own way keeps a second copy of each object in it, which for archives is more than fits.
    command = ("kubectl", "apply", "--server-side", "--filename", name)
    namespace = f" --namespace {options.namespace}" if options.namespace else ""
    by_hand = _KEY.format(job=plan.job.job, namespace=namespace)
    if plan.settings(KubernetesPlan).events:
        account = f"{options.namespace or 'NAMESPACE'}:{options.service_account or 'default'}"
        by_hand += f"\nnote: {_ROLE.format(namespace=namespace, account=account)}"
    room = kubernetes.name_room(plan.job.nodes) if options.jobset else _ROOM

    def counted(number: int) -> Rendered:
        again = render(plan.counted(number, room), gate_only=gate_only)
        return replace(again, sweep=plan.sweep)

    files = {name: RenderedFile(content)}
    return Rendered(plan.target, plan.job.job, files, command, by_hand, counted=counted)
