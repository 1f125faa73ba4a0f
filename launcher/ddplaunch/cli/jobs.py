"""Commands on submitted jobs: `list`, `status`, `logs`, `watch`, `cancel`; which job a command is about."""

from __future__ import annotations

import argparse
import sys
import time
from typing import IO, TYPE_CHECKING, Final

from ddplaunch import api
from ddplaunch.agent.text.printable import printable
from ddplaunch.cli import output
from ddplaunch.cli import parser as arguments
from ddplaunch.cli.parser import Command
from ddplaunch.errors import ExitCode, NeverStartsError, UsageError

if TYPE_CHECKING:
    from ddplaunch.backends.job import Handle, Job
    from ddplaunch.report.live import StateView


def job_or_last(text: str | None) -> str:
    """Return the handle of the job that `text` names; for None, that of the last job, and say which it is.

    Raises what `api.find` and `api.last` raise.
    """
    if text is not None:
        return str(api.find(text))
    handle = api.last()
    sys.stderr.write(f"the last job is {handle}\n")
    return str(handle)


def job_or_evidence(text: str | None) -> str:
    """Return the path of a bundle, a process or anybody's pods unchanged; otherwise what `meant` returns."""
    from ddplaunch.backends import foreign_jobs, saved

    if text is None:
        return job_or_last(None)
    is_outside = foreign_jobs.process_named(text) is not None or foreign_jobs.pods_named(text) is not None
    return text if is_outside or saved.names_file(text) else job_or_last(text)


def named_job(text: str | None) -> str:
    """Return the handle of the job that `text` names, for commands that never guess.

    For None, raises UsageError with the last job in its hint; otherwise raises what `api.find` raises.
    """
    if text is None:
        handle = api.last()
        raise UsageError(
            "name the job to cancel",
            hint=f"for the last one: `ddplaunch cancel {handle}`; `ddplaunch list` shows all",
        )
    return str(api.find(text, sure=True))


_LIST_HELP = """
The newest jobs come first. You see all jobs that have not ended, and ended ones up to 20 lines in total. On
Slurm, your other jobs are listed, too, while they wait or run.
"""

_LISTED = 20


def _add_list_arguments(parser: argparse.ArgumentParser) -> None:
    default = "the profile's; else the last job's target; else local, this machine"
    arguments.target(parser, "the scheduler whose jobs to list", default)
    parser.add_argument("-a", "--all", action="store_true", help="list every job, however old")
    arguments.as_json(parser)


def _list(args: argparse.Namespace) -> int:
    named = args.to is not None
    if named and args.profile:
        api.profile(args.profile, args.to)  # this refuses a profile of another target
    args.to = args.to or target_meant(args.profile)
    found = api.jobs(args.to)
    kept = [job for index, job in enumerate(found) if args.all or index < _LISTED or not job.state.ended]
    if args.json:
        from ddplaunch.report.machine import job_data

        output.print_json([job_data(job) for job in kept])
        return ExitCode.SUCCEEDED
    target = f" --to {args.to}" if named else ""
    if kept:
        print(table(kept, time.time()))
    else:
        sys.stderr.write(f"no jobs yet; `ddplaunch submit job.yaml{target}` starts one\n")
    if len(kept) < len(found):
        sys.stderr.write(f"{len(found) - len(kept)} older jobs: `ddplaunch list{target} --all`\n")
    return ExitCode.SUCCEEDED


def target_meant(profile: str | None) -> str:
    """Return the profile's target, else the last job's, with a line on stderr, else this machine.

    Raises UsageError, and SpecError for a profile that is named but broken.
    """
    try:
        chosen = api.profile(profile)
    except (UsageError, api.SpecError) as error:
        if profile:
            raise
        sys.stderr.write(f"{error}\n\nnote: showing the jobs on this machine\n")
        return "local"
    if chosen is not None and chosen.target:
        return chosen.target
    targets = list(dict.fromkeys(each.handle.target for each in api.known()))  # the newest job's first
    if len(targets) > 1 or targets not in ([], ["local"]):
        others = " or ".join(f"`--to {each}`" for each in targets[1:] or ["local"])
        where = "this machine" if targets[0] == "local" else targets[0]
        sys.stderr.write(f"jobs on {where}, where your last job went; use {others} for the others\n")
    return targets[0] if targets else "local"


def table(jobs: list[Job], now: float) -> str:
    """Return a line of headings, and then a line for each job."""
    from ddplaunch.report.words import clock, duration, sweep_text

    rows = [["HANDLE", "NAME", "SWEEP", "STATE", "SUBMITTED", "TOOK", "WHAT"]]
    for job in jobs:
        took = duration((job.ended or now) - job.submitted)
        name, values = printable(job.name), printable(sweep_text(job.sweep))
        rows.append([str(job.handle), name, values, str(job.state), clock(job.submitted), took, _what(job)])
    if not any(job.sweep for job in jobs):
        rows = [[*row[:2], *row[3:]] for row in rows]
    if all(job.name in job.handle.path.split("/") for job in jobs):
        rows = [[row[0], *row[2:]] for row in rows]  # the handle contains it
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, [*widths, 0], strict=True)).rstrip()
        for row in rows
    )


def _what(job: Job) -> str:
    from ddplaunch.report.progress import numbered

    return (numbered(job) + _present(job)).removesuffix(": ")


def _present(job: Job) -> str:
    from ddplaunch.report import known_verdicts

    verdicts = known_verdicts(job)
    if verdicts:
        return verdicts[0].code
    if job.detail or job.status is None or job.state.ended:
        return printable(job.detail)
    return job.status.phase if job.status.phase != job.state else ""


_STATUS_HELP = """
When a job has run for a minute, a line shows how long a step takes, measured by the job's own collectives,
and which rank waits least for the others. With --json, this is `pace`: medians, and `first`, the ranks that
wait least.

The exit code shows the job's result: 0 succeeded, 100 failed, 101 not finished, 103 cancelled, 104 the
preflight check failed, 105 hang. It is 102 if there is no such job. With --watch, it is also 104 for a job
that can never start: the wait ends, and the job stays in the queue.
"""


def _add_status_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.handle(parser)
    arguments.as_json(parser)
    parser.add_argument(
        "-w", "--watch", action="store_true", help="wait until the job has ended, like `watch`"
    )


def _status(args: argparse.Namespace) -> int:
    from ddplaunch.cli import exits

    job = api.status(job_or_last(args.handle))
    if args.watch and not job.state.ended:
        handle = job.handle  # by now with its number: the name alone means the newest
        try:
            job = watch_until_end(sys.stderr if args.json else sys.stdout, handle)
        except NeverStartsError:
            if args.json:
                output.print_job(api.status(handle))
            raise
    if args.json:
        output.print_job(job)
    else:
        from ddplaunch.report import board

        print(board.board_text(board.make_board(job, time.time())))
    return exits.of_job(job)


_LOGS_HELP = """
Every line begins with [node/rank], where rank is the global rank. --rank and --node take numbers such as
0,2-3. If you give both, a line must match both. Jobs that ddplaunch did not start can be read as well, by
their handle: slurm://5678, kubernetes://team/pytorchjob/llm.

examples:
  ddplaunch logs -f local://digits
  ddplaunch logs local://digits/3 --rank 0,2-3 --tail 50
"""


def _add_logs_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.handle(parser)
    parser.add_argument(
        "-f", "--follow", action="store_true", help="follow the output until the job has ended"
    )
    parser.add_argument(
        "-r", "--rank", type=arguments.numbers, metavar="RANKS", help="only these ranks, such as 0,2-3"
    )
    parser.add_argument("--node", type=arguments.numbers, metavar="NODES", help="only these nodes")
    parser.add_argument(
        "-n", "--tail", type=arguments.at_least(0), metavar="N", help="start with the last N lines"
    )


def _logs(args: argparse.Namespace) -> int:
    handle = job_or_last(args.handle)
    empty = True
    for line in api.logs(handle, nodes=args.node, ranks=args.rank, tail=args.tail, follow=args.follow):
        empty = False
        print(line, flush=args.follow)
    if empty and args.tail != 0:
        from ddplaunch.report.progress import headline

        job = api.status(handle)
        what = "nothing" if args.rank is args.node is None else "nothing on those ranks and nodes"
        sys.stderr.write(f"{job.handle} has printed {what}: {headline(job, time.time())}\n")
    return ExitCode.SUCCEEDED


_CANCEL_HELP = """
Stops the job, waits for it to end, and kills it if it takes too long. Cancelling a job that has already ended
changes nothing and is not an error.
"""


def _add_cancel_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.handle(parser, more="")
    arguments.as_json(parser)


def _cancel(args: argparse.Namespace) -> int:
    from ddplaunch.report.progress import headline

    before = api.status(named_job(args.handle))
    if before.state.ended:
        job = before
        sys.stderr.write(f"{job.handle} had already ended: {headline(job, time.time())}\n")
    else:
        sys.stderr.write(f"stopping {before.handle} …\n")
        try:
            job = api.cancel(before.handle)
        except KeyboardInterrupt:
            sys.stderr.write(
                f"\nstopped waiting; `ddplaunch status {before.handle}` shows whether the job has ended"
            )
            raise
        sys.stderr.write(f"{job.handle} {headline(job, time.time())}\n")
    if args.json:
        output.print_job(job)
    return ExitCode.SUCCEEDED


_WATCH_HELP = """
Shows a job until it ends: on a terminal as a full screen, redrawn once a second; elsewhere as one line for
each change. Nodes in the same state share a row, and unusual ones come first. Ctrl-C stops watching; the job
goes on.

With --web, you see the same in a browser, at the address that is printed: on this machine, or from another
one through a forwarded port. Nobody can read the page without knowing the address.

When the job has ended, its `status` is printed. The exit code is that of `status --watch`.
"""


def _add_watch_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.handle(parser)
    parser.add_argument("--web", action="store_true", help="serve the page for a browser, on loopback")
    parser.add_argument(
        "--port",
        type=arguments.port,
        metavar="PORT",
        help="with --web: the port to use (default: any free port)",
    )


def _watch(args: argparse.Namespace) -> int:
    from ddplaunch.cli import exits
    from ddplaunch.report import board

    if args.port is not None and not args.web:
        raise UsageError("--port is for --web", hint="add --web, or leave --port out")
    job = api.status(job_or_last(args.handle))
    if not job.state.ended:
        if args.web:
            from ddplaunch.cli.page_server import WebView

            with WebView(sys.stderr, args.port or 0) as view:
                job = _until_end(job.handle, view)
        else:
            job = watch_until_end(sys.stdout, job.handle)
    print(board.board_text(board.make_board(job, time.time())))
    return exits.of_job(job)


def watch_until_end(stream: IO[str], handle: Handle) -> Job:
    """Show the job on the stream until it has ended, and return it then. Raises as `api.watch`."""
    from ddplaunch.cli.output import drawn
    from ddplaunch.report import live

    view = live.full_screen(stream)
    with drawn(view):
        return _until_end(handle, view)


def _until_end(handle: Handle, view: StateView) -> Job:
    for job in api.watch(handle):
        view.show(job)
    return job


COMMANDS: Final = {
    "list": Command(_LIST_HELP, _add_list_arguments, _list),
    "status": Command(_STATUS_HELP, _add_status_arguments, _status),
    "logs": Command(_LOGS_HELP, _add_logs_arguments, _logs),
    "watch": Command(_WATCH_HELP, _add_watch_arguments, _watch),
    "cancel": Command(_CANCEL_HELP, _add_cancel_arguments, _cancel),
}
