"""The words of docs/accuracy.md: what was measured, how it is scored, and how the peers are asked."""

from __future__ import annotations

HEAD = """\
# Accuracy

Generated from [reference/corpus.json](reference/corpus.json), which `make corpus` measures: every
program of `tests/corpus` runs for real, on one machine, with torch and Gloo or with MPI, and what
ddplaunch says of it first is compared with what is true of it. The machine has no GPU; with NCCL some of
the programs were run on another, see below. The programs with a fault are written for it, and some of the
rules were written with them at hand; a program of yours may fail in a way that is not here. A run that was
ended, as unknown, before it came to its fault, because the machine was too busy to start it, does not count.
"""

SCORES = """\
## Confusion matrix

The true cause of each program, and the codes that its runs got.

- right rank: the ranks that are at fault are named, all of them and no other;
- right rank and cause: the code is that of the table as well;
- wider cause: the ranks are right, and the code is true of them but says less of why, such as
  `rank-in-user-code` of a rank that waits for a lock in its own code;
- abstained: `unknown`, no verdict at all, or a doubtful verdict (0.5 at most) that names no rank;
- wrong: an innocent rank is named, or a cause that is not true.
"""

CALIBRATION = """\
## How sure they were

Verdicts that name a cause, by the confidence with which they were said, and of how many all that they said
was true, with the right ranks and the cause or a wider one: those above, those said from outside (below),
and those with NCCL (below). Of a hundred that are said with 0.9, ninety should be.
"""

MISSES = """\
## Every miss
"""

PEERS = """\
## Side by side

The same programs, where ranks are at fault and torchrun starts them, once more under plain `torchrun`,
without ddplaunch. From the moment progress stops the job gets twice the seconds that ddplaunch took to
its first word, 40 s at most and 15 s at least; then what still runs is asked, and ended. None of these
tools was made to name one rank in all cases, and each is scored by what a reader would take from its
output:

- `torchrun`: the rank below "Root Cause (first observed failure)"; of several nodes, that with the
  earliest time. It abstains where no rank has failed before the limit.
- `torchfrtrace`: torch's own analyser of flight recorder dumps (`python -m
  torch.distributed.flight_recorder.fr_trace`). Gloo writes no dump by itself: a thread in each rank
  writes one at the limit, as torch's API gives it. The ranks that it calls missing or culprits count;
  where it ends with an error, it abstains. "Mended dumps": what torch's Gloo recorder leaves out (names
  and states of the groups) is filled in by hand first, which a user could not do.
- `py-spy`: `py-spy dump` of each living rank at the limit. A person looks for the odd one out: ranks
  whose innermost line in the program's own folder differs from that of more than half of the ranks are
  at fault. It abstains where no line has such a majority, where none differs, and where nothing runs any
  more.
"""

OUTSIDE_HEAD = """\
## From outside

Programs of the corpus once more under plain `torchrun`, and `ddplaunch diagnose pid:…` of them: with py-spy,
as on a machine that does not have it, and as for a user who may not trace, to whom the kernel does not show
what threads wait for. A job is asked about 13 s after progress has stopped, a healthy one when all its ranks
have been there for 20 s. One that has ended by then, or whose ranks have, leaves nothing to look at, and
counts apart. It is a random sample (seed 18): half the programs of each cause that may hang, all that were
measured before, and twelve healthy ones. `slow` says of a job that it moves, and for whom its ranks
wait. Seconds: from the call to the sentence, in the median. The machine was busy with other work. The rules
were mended by what these programs had shown, and the figures are those of the mended rules.

What is missed has these reasons. With py-spy: a stack does not show which group a call is of, nor what an
asynchronous send or receive waits for. Without py-spy: all ranks wait in calls of torch.distributed
(mismatches, sends and receives, groups), and only stacks show which calls. Where tracing is forbidden as
well: a rank that waits for a lock in its own process looks like one that waits in a collective. The kernel
shows when each rank last sent a message to another. A rank sends one when it calls a collective, so this
names a rank that has computed for seconds since. These programs stop within milliseconds: it names none.

Last, programs whose ranks tell of themselves, for who may not trace. One calls
`torch.distributed.debug.start_debug_server` in each rank: that gives stacks and the flight recorder. The
other dumps its flight recorder every two seconds to where `TORCH_FR_DUMP_TEMP_FILE` says. Each program begins
with that after `init_process_group`.
"""

NCCL_HEAD = """\
## With NCCL

Programs of the corpus once more with NCCL, and some that need a GPU, on a machine with one GPU. NCCL refuses
two ranks of a host on one GPU; with a NCCL_HOSTID of its own each rank passes for a host, and they talk over
sockets of the loopback interface. So NVLink and InfiniBand are not part of this. Several jobs run at a time,
and share the GPU. With NCCL calls return at once, and ranks run ahead of one another. The rules were mended
by what these programs had shown: when they ran for the first time, under a higher load, 10 of 54 verdicts
were wrong, and half of the others were `unknown`. Measured by `python -m tests.corpus --nccl`.
"""

PROGRAMS = """\
## Every program

A program with words after its name is started with these. Seconds: from the last progress to the first
word, the median of its runs.
"""
