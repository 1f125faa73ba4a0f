"""Says where a value is to be found that must not stand in the job file."""

from pydantic import ConfigDict, Field

from ddplaunch.spec.fields import DnsName, EnvName, Line, Section, Word


class SecretKey(Section):
    """One key of a Secret that the cluster keeps."""

    name: DnsName = Field(description="Name of the Secret, in the job's namespace.", examples=["s3"])
    key: Word = Field(description="Key inside the Secret.", examples=["access-key"])


class SecretRef(Section):
    """Source of a secret's value: one of three. The value itself never stands in the file."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-whole": True,
            "x-wanted": "{env: NAME}, {file: PATH} or {secret: {name: …, key: …}}",
            "x-hint": "a secret's value never stands in the job file; say where it is to be found",
        }
    )

    env: EnvName | None = Field(
        default=None, description="Variable of the environment in which `ddplaunch submit` is called."
    )
    file: Line | None = Field(
        default=None,
        description="File whose content, without its last newline, is the value.",
        examples=["/home/me/.hf-token"],
    )
    secret: SecretKey | None = Field(
        default=None,
        description="Key of a Kubernetes Secret.",
        examples=[{"name": "s3", "key": "access-key"}],
    )
