"""Makes the key of a job: random, in a Secret that is deleted with the job, and in no file.

A job that `submit` did not send may have such a Secret too. Without one, its key is the Job's uid, a label
that every user who may list pods can read.
"""

from __future__ import annotations

import base64
import os

from ddplaunch.backends.kubernetes import objects
from ddplaunch.backends.kubernetes.objects import Json

_BYTES = 32


def secret(owner: Json) -> Json:
    """Return a Secret with a new key for the job `owner`, under the name that its pods mount."""
    own = objects.metadata(owner)
    metadata = {field: own[field] for field in ("namespace", "annotations") if field in own}
    labels = {name: value for name, value in objects.labels(owner).items() if name != objects.QUEUE}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {**metadata, "name": objects.name(owner) + objects.KEY, "labels": labels},
        "immutable": True,
        "data": {"key": base64.b64encode(os.urandom(_BYTES).hex().encode()).decode()},
    }
