"""The key of a job that `submit` sends: random, in a Secret that goes with the job, and in no file.

A job that is sent by other means may have such a Secret too. Without one its key is the Job's uid, which is a
label that whoever may list pods can read.
"""

from __future__ import annotations

import base64
import os

from ddplaunch.backends.kubernetes import objects
from ddplaunch.backends.kubernetes.objects import Json

_BYTES = 32


def secret(owner: Json) -> Json:
    """A new one for the job `owner`, under the name that its pods look for."""
    told = objects.metadata(owner)
    metadata = {field: told[field] for field in ("namespace", "annotations") if field in told}
    labels = {name: value for name, value in objects.labels(owner).items() if name != objects.QUEUE}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {**metadata, "name": objects.name(owner) + objects.KEY, "labels": labels},
        "immutable": True,
        "data": {"key": base64.b64encode(os.urandom(_BYTES).hex().encode()).decode()},
    }
