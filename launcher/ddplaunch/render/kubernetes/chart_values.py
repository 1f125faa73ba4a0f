"""The schema of the chart's values: the job file's, and what would stop a pod from saying what is wrong.

Everything else that the rules and Kubernetes' limits refuse is said by the gate, in their words. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ddplaunch.agent.job_file import kubernetes
from ddplaunch.agent.plan import Env
from ddplaunch.plan import kubernetes as limits
from ddplaunch.render.kubernetes import overlay, pod
from ddplaunch.spec.schema import json_schema

Schema = dict[str, Any]

_PART = {"$ref": "#/$defs/PodTemplatePart"}
_BELOW = {"$ref": "#/$defs/BelowPodTemplatePart"}
_NO_WORD = {"not": {"pattern": r"^\$"}}
_OURS = [pod.PYTHON, pod.HUB, pod.GATE, pod.TRAINER]
_BESIDE_THE_JOB: Schema = {
    "sourceArchive": {
        "description": (
            "The files of `source` as a tar archive in base64, because Helm cannot read files "
            "outside the chart. Set it with --set-file sourceArchive=FILE."
        ),
        "type": "string",
        "pattern": r"^[A-Za-z0-9+/=\s]*$",
        "default": "",
    },
    "createRole": {
        "description": (
            "Create a Role with the permission that `events` under `notify` needs, and give it "
            "to the pods' service account. The service account is created, too, unless "
            "kubernetes.service_account names one. Off by default, because many users may not create Roles."
        ),
        "type": "boolean",
        "default": False,
    },
    "global": {
        "description": "Helm passes this to every chart; ddplaunch does not read it.",
        "type": "object",
    },
}
"""The values that are not keys of a job file."""


def schema() -> Schema:
    """Return the schema. Keys with a default are required, because values.yaml gives it.

    So `nodes: null`, by which Helm would remove the default, is refused, as the launcher refuses it.
    """
    made = json_schema()
    about = "A job file, as Helm merges it over values.yaml."
    made |= {"$id": "urn:ddplaunch:values:v1", "title": "Values", "description": about}
    del made["properties"]["sweep"]  # a release is one job
    made["properties"] |= _BESIDE_THE_JOB
    number = made["properties"]["nodes"]["anyOf"][0]
    made["properties"]["nodes"] = {"description": "Number of nodes.", "default": 1, **number}
    for part in [made, *_sections(made, made)]:
        part["required"] = [
            key
            for key, each in part["properties"].items()
            if key in part["required"] or each.get("default") is not None or "$ref" in each
        ]
    made["required"].append("image")
    for place, more in _forms().items():
        *owner, key = place.split(".")
        properties = made["$defs"][owner[0]]["properties"] if owner else made["properties"]
        properties[key] = {**properties[key], "allOf": [more]}
    made["$defs"] |= _template_parts()
    made["allOf"] = [*_name_lengths(), _restricted(), *map(_queued, limits.QUEUED), _own_network()]
    return made


def _sections(whole: Schema, part: Schema) -> Iterator[Schema]:
    """Yield the sections that always exist."""
    for each in part["properties"].values():
        if "$ref" in each:
            section = whole["$defs"][each["$ref"].rpartition("/")[2]]
            yield section
            yield from _sections(whole, section)


def _forms() -> dict[str, Schema]:
    """Return the forms without which no API server would accept the values and no pod could start."""
    own = [f"^{re.escape(prefix)}" for prefix in limits.OWN_PREFIXES]
    own += [f"^{re.escape(key)}$" for key in limits.OWN_KEYS]
    ours = {"not": {"pattern": "|".join(own)}}
    key, value, resource = _whole(limits.KEY), _whole(limits.LABEL_VALUE), _whole(limits.RESOURCE)
    device = {**resource, "not": _whole(limits.KUBERNETES_OWN)}
    folders = f"^/*$|^{limits.SHM}/*$|^{limits.FOLDER}(/|$)|:"
    return {
        "image": {"type": "string", **_whole(limits.IMAGE)},
        "Kubernetes.labels": {"propertyNames": {**key, **ours}, "additionalProperties": value},
        "Kubernetes.annotations": {"propertyNames": {**key, **ours}},
        "Kubernetes.node_selector": {"propertyNames": key, "additionalProperties": value},
        "Kubernetes.queue": {"maxLength": kubernetes.LABEL},
        "Kubernetes.networks": {"items": _whole(limits.NETWORK)},
        "Kubernetes.affinity": _affinity(),
        "Kubernetes.topology": {"oneOf": [{"type": "null"}, *map(_given, ("required", "preferred"))]},
        "Kubernetes.gpu_resource": device,
        "Kubernetes.gpu_type_label": key,
        "Kubernetes.rdma_resource": device,
        "Kubernetes.pod_template": _pod_template(),
        "Toleration.key": key,
        "Toleration.value": value,
        "Topology.required": key,
        "Topology.preferred": key,
        "TopologySpread.key": key,
        "SecretKey.key": _whole(limits.SECRET_KEY),
        "SecretRef.env": {"type": "null"},
        "SecretRef.file": {"type": "null"},
        "SecretRef.secret": {"type": "object"},
        "Volume.name": {"not": {"enum": list(limits.VOLUMES)}},
        "Volume.mount_path": {"not": {"pattern": folders}},
        "Volume.host_path": {"not": {"type": "string", "pattern": r"(^|/)\.\.(/|$)"}},
    }


def _affinity() -> Schema:
    """Return the parts of an affinity, and the lists to which our term is added."""
    terms = {"type": "object", "properties": {limits.REQUIRED: {"type": "array"}}}
    parts = {key: {"type": "object"} if key == "nodeAffinity" else terms for key in limits.AFFINITY}
    return {"properties": parts, "additionalProperties": False}


def _whole(pattern: str) -> Schema:
    return {"pattern": f"^({pattern})$"}


def _name_lengths() -> Iterator[Schema]:
    """Yield how long a job's name may be with a JobSet, by the digits of the last node's number."""
    jobset = {"kubernetes": {"properties": {"jobset": {"const": True}}}}
    for digits in range(1, 5):
        room = kubernetes.LABEL - len(f"-node-0-{'9' * digits}{kubernetes.POD_SUFFIX}")
        least = 10 ** (digits - 1) + 1 if digits > 1 else 1
        yield {
            "if": {"properties": {**jobset, "nodes": {"minimum": least}}},
            "then": {"properties": {"name": {"maxLength": room}}},
        }


def _restricted() -> Schema:
    """Return what the `restricted` Pod Security Standard forbids: no pod would ever be made."""
    forbidden = {
        "watchdog": {"privileges": {"const": "none"}},
        "resources": {"rdma": {"maximum": 0}},
        "kubernetes": {"host_network": {"const": False}, "run_as_user": {"minimum": 1}},
    }
    sections: Schema = {name: {"properties": each} for name, each in forbidden.items()}
    sections["volumes"] = {"items": {"properties": {"host_path": {"type": "null"}}}}
    return {"if": _option("restricted"), "then": {"properties": sections}}


def _queued(name: str) -> Schema:
    """Return the rule that `name` needs a queue."""
    part, queue = ({"properties": {"kubernetes": _given(key)}} for key in (name, "queue"))
    return {"if": part, "then": queue}


def _given(key: str) -> Schema:
    """Return the rule that the key is there and is not null."""
    return {"required": [key], "properties": {key: {"type": ["string", "object"]}}}


def _own_network() -> Schema:
    """Return what a pod template must not say, depending on the network that the pods have."""
    affinity = {"properties": {"podAntiAffinity": {"properties": _kept(limits.REQUIRED)}}}
    machines = {"dnsPolicy": {"enum": ["ClusterFirstWithHostNet", "None"]}, "affinity": affinity}
    pods = {"dnsPolicy": {"enum": ["ClusterFirst", "None", None]}}
    then, otherwise = (_of_template({"spec": {"properties": spec}}) for spec in (machines, pods))
    return {"if": _option("host_network"), "then": then, "else": otherwise}


def _option(name: str) -> Schema:
    return {"properties": {"kubernetes": {"properties": {name: {"const": True}}}}}


def _of_template(parts: Schema) -> Schema:
    template = {"properties": {"pod_template": {"properties": parts}}}
    return {"properties": {"kubernetes": template}}


def _kept(*keys: str) -> Schema:
    return dict.fromkeys(keys, False)


def _template_parts() -> dict[str, Schema]:
    """Return what may be anywhere in a pod template: items with their keys, and no directives for the merge.

    Two directives are allowed: a list may be replaced, by an item that says so, and an item of it deleted.
    """
    lists: Schema = {}
    for name, key in overlay.KEYS.items():
        kind = {"type": "integer"} if key == "containerPort" else {"type": "string", "minLength": 1}
        item = {
            "type": "object",
            "required": [key],
            "properties": {key: kind, "$patch": {"const": "delete"}},
            "propertyNames": {"anyOf": [{"const": "$patch"}, _NO_WORD]},
            "allOf": [_BELOW],
        }
        items = {"items": {"anyOf": [{"const": {"$patch": "replace"}}, item]}}
        lists[name] = {"if": {"type": "array"}, "then": items, "else": _PART}
    return {
        "PodTemplatePart": {"propertyNames": _NO_WORD, "allOf": [_BELOW]},
        "BelowPodTemplatePart": {"properties": lists, "additionalProperties": _PART, "items": _PART},
    }


def _pod_template() -> Schema:
    """Return what in a pod template would break the gate: the tables of `guard`, as a schema."""
    container = _kept(*overlay.CONTAINER, "$patch") | {
        "env": _list({"name": {"not": {"pattern": f"^{Env.PREFIX}"}}}),
        "volumeMounts": _list({"mountPath": {"not": {"pattern": f"^{limits.FOLDER}(/|$)"}}}),
    }
    containers = _list({})
    own = {"properties": {"name": {"enum": _OURS}}}
    containers["items"] |= {"if": own, "then": {"properties": container}}
    spec = _kept(*overlay.POD) | {
        "terminationGracePeriodSeconds": {"type": "integer", "minimum": kubernetes.SHORTEST_GRACE},
        "containers": containers,
        "initContainers": containers,
        "volumes": _list({"name": {"not": {"enum": list(overlay.VOLUMES)}}}),
    }
    # A pod has no name of its own to begin with, so nobody may ask for one.
    spec |= {key: {"type": "null"} for key in overlay.POD if "host" in key.lower() and key != "hostNetwork"}
    labels = {"type": "object", "propertyNames": {"not": {"pattern": r"^app\.kubernetes\.io/"}}}
    metadata = {"type": "object", "properties": {"labels": labels}}
    return {
        "allOf": [_PART],
        "properties": {"metadata": metadata, "spec": {"type": "object", "properties": spec}},
    }


def _list(item: Schema) -> Schema:
    """Return a list that is not replaced, and whose items have these properties."""
    return {"type": "array", "items": {"properties": {**item, "$patch": {"const": "delete"}}}}
