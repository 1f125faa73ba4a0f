"""The recipients of messages about the job."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from ddplaunch.agent.contract import Occasion
from ddplaunch.spec.fields import Section
from ddplaunch.spec.secrets import SecretRef

if TYPE_CHECKING:
    OccasionName = str
else:
    OccasionName = Literal[Occasion.ALL]


class Notify(Section):
    """One recipient, which gets one message of one sentence at a time: a webhook, a command, or events."""

    webhook: SecretRef | None = Field(
        default=None,
        description="Where the URL (http or https) is to be found to which each message is sent by POST. "
        "Who knows such a URL can write to its channel, so it is treated as a secret.",
    )
    command: Annotated[tuple[str, ...], Field(min_length=1)] | None = Field(
        default=None,
        examples=[["mail", "-s", "digits", "me@example.com"]],
        description="Program with its arguments that is run for each message, with the message on its "
        "standard input, where the hub runs: on node 0, in a pod in the hub's container. It is ended after "
        "10 seconds.",
    )
    events: bool = Field(
        default=False,
        description="Show each message where the scheduler shows the job: on Kubernetes as an Event of the "
        "Job, which the pods' service account must be allowed to create; on Slurm as the job's comment, "
        "which it becomes without being asked unless the job has one of its own.",
    )
    format: Literal["json", "slack"] = Field(
        default="json",
        description="What a message is: our own JSON with all that is known, or `slack` for what Slack, "
        "Mattermost and others take: a JSON object with one text.",
    )
    when: tuple[OccasionName, ...] = Field(
        default=Occasion.ALL,
        description="Occasions of a message; all, of which a healthy job has `end` alone.",
    )
