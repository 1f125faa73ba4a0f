"""The section for Prometheus."""

from pydantic import Field

from ddplaunch.spec.fields import Port, Section, Word


class Metrics(Section):
    """Figures of the job in Prometheus' text format, which the hub serves."""

    port: Port | None = Field(
        default=None,
        examples=[9400],
        description="Port of node 0 at which the hub serves /metrics; by default none is opened.",
    )
    address: Word | None = Field(
        default=None,
        description="Address of node 0 to listen on; by default all of a pod's, and elsewhere 127.0.0.1, "
        "because all who reach the port can read the figures.",
    )
