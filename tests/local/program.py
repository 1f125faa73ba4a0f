"""A program that uses `ddplaunch.api` as its users do: `make lint` checks its types, test_api.py runs it."""

import sys
from collections.abc import Iterator
from typing import assert_type

from ddplaunch import api


def main(train: str) -> None:
    """Submit a job of which rank 1 fails, follow it, say why it failed; then cancel one that would go on."""
    job = api.JobSpec(
        apiVersion="ddplaunch/v1",
        name="program",
        nproc_per_node=2,
        python=sys.executable,
        source=(train,),
        command=("train.py", "--raise-at", "1"),
        watchdog=api.Watchdog(kill_after=60.0),
    )
    handle = assert_type(api.submit(job), api.Handle)
    lines = assert_type(api.logs(handle, ranks=[0], follow=True), Iterator[str])
    print("steps", sum(": 2 ranks" in line for line in lines))
    ended = assert_type(api.wait(handle, timeout=60), api.Job)
    print(ended.state, ended.exit_code == api.Exit.WORKER_FAILED)
    found = assert_type(api.diagnose(handle), api.Diagnosis)
    for verdict in assert_type(found.verdicts, list[api.Verdict]):
        print(verdict.code, verdict.ranks)

    longer = job.model_copy(update={"command": ("train.py", "--steps", "10000")})
    handle = api.submit(longer)
    next(line for line in api.logs(str(handle), follow=True) if "step 1" in line)
    try:
        api.wait(handle, timeout=0.1)
    except api.NotFinishedError as error:
        print(error.message)
    bundle = assert_type(api.diagnose(handle).bundle, api.Bundle | None)
    nodes = bundle.evidence.evidence if bundle and bundle.evidence else []
    print("ranks", sum(len(node.ranks) for node in nodes))
    print(assert_type(api.cancel(handle).state, api.State))
    print([str(each.handle) for each in assert_type(api.jobs(), list[api.Job])])


if __name__ == "__main__":
    main(sys.argv[1])
