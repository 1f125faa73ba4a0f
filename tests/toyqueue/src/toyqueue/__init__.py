"""A target of another package: its record, which imports nothing else."""

from ddplaunch.targets import Target

TARGET = Target(
    "toyqueue",
    section="toyqueue.job_file:Toyqueue",
    problems="toyqueue.job_file:problems",
    plan="toyqueue.job_file:make",
    render="toyqueue.job_file:render",
    connect="toyqueue.queue:connect",
)
