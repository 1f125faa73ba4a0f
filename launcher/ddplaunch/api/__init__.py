"""ddplaunch from Python: what the commands do, as functions with typed results. docs/reference/api.md

A job is a `JobSpec`, read by `load` or built in Python; `load_all` returns those of a sweep. A submission is
named by its handle: a `Handle`, or its text. No function prints, ends the process or installs a signal
handler. Each closes what it opens, and any number of threads may call them. All raise errors from the tree in
`ddplaunch.errors`.

Importing this module imports none of the others: each is imported when it is first needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ddplaunch.api.files import (
    Choice,
    Validation,
    choose,
    config_file,
    configuration,
    load,
    load_all,
    plan,
    plan_all,
    profile,
    render,
    validate,
)
from ddplaunch.api.submission import doctor, submit, submit_all, try_out
from ddplaunch.api.submitted import (
    bring_outputs,
    cancel,
    delete,
    diagnose,
    find,
    follow,
    jobs,
    known,
    last,
    logs,
    outputs,
    remains,
    status,
    wait,
    wait_all,
    watch,
)
from ddplaunch.errors import (
    ClusterError,
    DdplaunchError,
    ExitCode,
    NeverStartsError,
    NotFinishedError,
    NotFoundError,
    SourceTooLargeError,
    UsageError,
)

if TYPE_CHECKING:
    from ddplaunch.agent.contract import Bundle, Exit, Verdict
    from ddplaunch.backends.job import Handle, Job, Known, Remains, State
    from ddplaunch.backends.slurm.submission import UncertainError
    from ddplaunch.plan.plan import Plan
    from ddplaunch.render import Rendered
    from ddplaunch.report import Diagnosis
    from ddplaunch.spec.models import (
        Gate,
        JobSpec,
        Metrics,
        Notify,
        Outputs,
        Rendezvous,
        Resources,
        Resume,
        SecretKey,
        SecretRef,
        Signal,
        Volume,
        Watchdog,
    )
    from ddplaunch.spec.problems import Problem, SpecError
    from ddplaunch.spec.targets import (
        Container,
        Kubernetes,
        Local,
        Slurm,
        Toleration,
        Topology,
        TopologySpread,
    )

__all__ = [
    "Bundle",
    "Choice",
    "ClusterError",
    "Container",
    "DdplaunchError",
    "Diagnosis",
    "Exit",
    "ExitCode",
    "Gate",
    "Handle",
    "Job",
    "JobSpec",
    "Known",
    "Kubernetes",
    "Local",
    "Metrics",
    "NeverStartsError",
    "NotFinishedError",
    "NotFoundError",
    "Notify",
    "Outputs",
    "Plan",
    "Problem",
    "Remains",
    "Rendered",
    "Rendezvous",
    "Resources",
    "Resume",
    "SecretKey",
    "SecretRef",
    "Signal",
    "Slurm",
    "SourceTooLargeError",
    "SpecError",
    "State",
    "Toleration",
    "Topology",
    "TopologySpread",
    "UncertainError",
    "UsageError",
    "Validation",
    "Verdict",
    "Volume",
    "Watchdog",
    "bring_outputs",
    "cancel",
    "choose",
    "config_file",
    "configuration",
    "delete",
    "diagnose",
    "doctor",
    "find",
    "follow",
    "jobs",
    "known",
    "last",
    "load",
    "load_all",
    "logs",
    "outputs",
    "plan",
    "plan_all",
    "profile",
    "remains",
    "render",
    "status",
    "submit",
    "submit_all",
    "try_out",
    "validate",
    "wait",
    "wait_all",
    "watch",
]

_MODULES: Final = {
    "agent.contract": ("Bundle", "Exit", "Verdict"),
    "backends.job": ("Handle", "Job", "Known", "Remains", "State"),
    "backends.slurm.submission": ("UncertainError",),
    "plan.plan": ("Plan",),
    "render": ("Rendered",),
    "report": ("Diagnosis",),
    "spec.models": (
        "Gate",
        "Metrics",
        "Notify",
        "Outputs",
        "Rendezvous",
        "Resources",
        "Resume",
        "SecretKey",
        "SecretRef",
        "Signal",
        "Volume",
        "Watchdog",
    ),
    "spec.problems": ("Problem", "SpecError"),
    "spec.targets": (
        "Container",
        "Kubernetes",
        "Local",
        "Slurm",
        "Toleration",
        "Topology",
        "TopologySpread",
    ),
}
"""The types, by the module that defines them; `JobSpec` is `spec.models.job_model()`."""


if not TYPE_CHECKING:  # a type checker would take any name for one of this module

    def __getattr__(name: str) -> Any:
        """Import and return a type of `__all__`. Raises AttributeError for another name."""
        from importlib import import_module

        if name == "JobSpec":
            from ddplaunch.spec.models import job_model

            return job_model()
        for module, names in _MODULES.items():
            if name in names:
                return getattr(import_module(f"ddplaunch.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        """Return the names of `__all__`, for completion."""
        return __all__
