"""The words of docs/accuracy.md: what was measured, how it is scored, and how the peers are asked."""

from __future__ import annotations

HEAD = """\
# Accuracy

Generated from [reference/corpus.json](reference/corpus.json), which `make corpus` measures. Every program of
`tests/corpus` runs for real, on one machine, with torch and Gloo or with MPI; what ddplaunch says about it
first is compared with what is true. The machine has no GPU; some of the programs were run with NCCL on
another machine, see below. The programs with a fault were written for it, and some of the rules were written
with these programs at hand: a program of yours may fail in a way that is not here. If a run was ended, as
unknown, before it came to its fault, because the machine was too busy to start it, it does not count.
"""

SCORES = """\
## Confusion matrix

The true cause of each program, and the codes that its runs got.

- right rank: the ranks at fault are named, all of them and no other;
- right rank and cause: the code is that of the table as well;
- wider cause: the ranks are right, and the code is true of them but says less about why, such as
  `rank-in-user-code` for a rank that waits for a lock in its own code;
- abstained: `unknown`, no verdict at all, or a doubtful verdict (0.5 at most) that names no rank;
- wrong: an innocent rank is named, or a cause that is not true.
"""

CALIBRATION = """\
## How sure they were

Verdicts that name a cause, by their confidence, and how many of them were completely true: with the right
ranks, and the cause or a wider one. There is a column for the verdicts above, for those given from outside
(below), and for those with NCCL (below). Of a hundred that are said with 0.9, ninety should be true.
"""

UNSEEN = """\
## Programs that nobody had seen

The programs above have shaped the rules. So, before version 1.0, people who knew neither the rules nor the
tests wrote other programs, each with a different mistake, and noted what is true of it without running it.
These are the last five rounds, on one machine with 2 CPUs under a load of 5 to 12, with torch 2.15 and Gloo.
They also had 8, 6, 6, 10 and 11 healthy programs that look ill. What a round showed has been mended since.
The numbers are from the first look. The programs of the last three rounds have subtler faults: most stop in a
call that is right, far from the line that is wrong. Two authors wrote the fourth, and two others the fifth.

| | first round, of 26 | second, of 26 | third, of 28 | fourth, of 34 | fifth, of 37 |
|---|---|---|---|---|---|
| right ranks | 22 | 21 | 19 | 25 | 33 |
| only some of the right ranks, or others besides them | 3 | 3 | 4 | 2 | 2 |
| wrong | 1 | 1 | 3 | 4 | 1 |
| the wrong ones were said with | 0.5 | 0.97 | 0.9 to 0.95 | 0.95 | 0.97 |
| abstained | 0 | 1 | 2 | 2 | 1 |
| right ranks, but a cause that is not true, said with 0.9 or more | 1 | 0 | 0 | 1 | 0 |
| the sentence names the line that decides | 18, now 25 | 20, now 23 | 12, now 20 | 16, now 26 | 25, now 30 |

In the fifth round, 26 verdicts were said with 0.95 or more, and 25 of them were right. In the other, two
processes claimed one rank, and the verdict named the one with that number, and not the one to which the
launcher had given another (mended). The abstention was about a group that one rank had not made, where one
line makes all groups (mended). Two verdicts named both sides of a tie, one of them the right one as well: one
names the right side now, as only its ranks had got a signal; in the other, nothing shows which of two stages
counted wrongly. None of the 11 healthy programs was ended when it was given 30 s; 8 got a notice
after 5 s, one of them with a false word (mended). Two that stand for 12 and 13 s were ended when given 12.
After mending, all 37 ran with torch 2.7.1 under a load of 10 to 20: 35 were right, the other two named both
sides of these ties, and none was wrong. One of the two is right since then, judged again.

In the fourth round, the four wrong verdicts named the rank that was stuck, and not the one that caused it.
One waited for a key that another rank had deleted, one for a lock file that another had left behind; one
polled a counter that another had raised once too often, and one asked a rank that could not answer. In the
last case both are named now, with 0.7. The one with the key is said with 0.7 now, and so is whatever says
that a rank polls; the one with the lock file is unchanged. All others name the right ranks now. None of the
healthy programs was ended. 5 of 10 got a notice, and two of these were told to have swallowed an exception,
although they were trying again (mended). 18 of the 34 ran with torch 2.7.1 after that: 17 were right, and
one, which had got no name, is right since then.

In the first three rounds, 21, 16 and 18 verdicts were said with 0.95 or more. 19, 12 and 16 named exactly the
right ranks. Of the other eight, two left out ranks, and four named innocent ranks besides the right ones. One
accused two of four ranks, although all four went through a set, each in its own order. One accused those who
waited for a file, and not the rank that was to write it. Of the healthy programs, 5, 4 and 4 got a notice
about what their ranks were doing, after half of the default patience; the last was told to have swallowed an
exception, while it only tried again. One was ended: it evaluates for 15 s, and was given 12.

After mending, all but one of the third round name the right ranks, or none: there, each rank draws by chance
which layers it skips, and the first rank that draws differently is named.

25 programs of the second round ran with torch 2.7.1 and 2.4.1 for the first time; one needs a newer torch.
None was judged wrongly. One of them got a verdict with both camps that named no rank; it names all of them
now. The 28 of the third round ran with torch 2.7.1: 25 were right and none wrong. Two of the other three are
right since then, judged again from what was kept of them. In the last, ranks call collectives that return
tensors (`torch.distributed._functional_collectives`), which nothing records before torch 2.8.
"""

MISSES = """\
## Every miss
"""

PEERS = """\
## Side by side

Those of the same programs in which ranks are at fault and that torchrun starts, once more under plain
`torchrun`, without ddplaunch. From the moment progress stops, the job gets twice the seconds that ddplaunch
took to its first word, 15 s at least and 40 s at most. Then the tool is asked about what still runs, and the
job is ended. None of these tools was made to name one rank in all cases, and each is scored by what a reader
would conclude from its output:

- `torchrun`: the rank below "Root Cause (first observed failure)"; if there are several nodes, the one with
  the earliest time. It abstains if no rank has failed before the limit.
- `torchfrtrace`: torch's own analyser of flight recorder dumps (`python -m
  torch.distributed.flight_recorder.fr_trace`). Gloo writes no dump by itself: a thread in each rank writes
  one at the limit, as torch's API gives it. The ranks that it calls missing or culprits count; if it ends
  with an error, it abstains. "Mended dumps": what torch's Gloo recorder leaves out (names and states of the
  groups) is filled in by hand first, which a user could not do.
- `py-spy`: `py-spy dump` of each living rank at the limit. A person looks for the odd one out: a rank is at
  fault if its innermost line in the program's own folder differs from that of more than half of the ranks.
  It abstains if no line has such a majority, if none differs, or if nothing runs any more.
"""

OUTSIDE_HEAD = """\
## From outside

Programs of the corpus once more under plain `torchrun`, examined by `ddplaunch diagnose pid:…` in three
ways: with py-spy; as on a machine that does not have it; and as a user who may not trace, to whom the kernel
does not show what threads wait for. `diagnose` is called about 13 s after progress has stopped, and for a
healthy job when all its ranks have been there for 20 s. If a job, or its ranks, have ended by then, there is
nothing to look at, and it is counted separately. The programs are a random sample (seed 18): half the
programs of each cause that may hang, all that were measured before, and twelve healthy ones. `slow` says
that a job moves, and for whom its ranks wait. Seconds: from the call to the sentence, the median. The
machine was busy with other work. The rules were corrected because of what these programs showed, and the
figures are those of the corrected rules.

The misses have these reasons. With py-spy: a stack does not show which group a call belongs to, nor what an
asynchronous send or receive waits for. Without py-spy: all ranks wait in calls of torch.distributed
(mismatches, sends and receives, groups), and only stacks show which calls. If tracing is forbidden as well:
a rank that waits for a lock in its own process looks like one that waits in a collective. The kernel shows
when each rank last sent a message to another. A rank sends one when it calls a collective, so this names a
rank that has computed for seconds since. These programs stop within milliseconds: it names none.

The last two ways are for a user who may not trace, with programs whose ranks report on themselves. One calls
`torch.distributed.debug.start_debug_server` in each rank: that gives stacks and the flight recorder. The
other dumps its flight recorder every two seconds to the file that `TORCH_FR_DUMP_TEMP_FILE` names. Each
program does this right after `init_process_group`.
"""

OTHER_TORCH_HEAD = """\
## With older torch

The same programs with Gloo and older versions of torch, on the same machine. Before 2.8, torch keeps no
record of Gloo's collectives: [what each version shows](reference/torch-versions.md). A program that destroys
its group may block there, with plain torchrun too. A run that stood still there does not count, so only few
healthy programs do. With 2.6, 2.8, 2.10 and 2.12, we ran only some of the programs with a fault, and none of
the healthy ones. Measured by `python -m tests.corpus` in an environment with that torch.
"""

NCCL_HEAD = """\
## With NCCL

Programs of the corpus once more with NCCL, and some that need a GPU, on a machine with one GPU. NCCL refuses
two ranks of one host on the same GPU. So each rank has its own NCCL_HOSTID and passes for a host, and the
ranks talk over sockets of the loopback interface. NVLink and InfiniBand are therefore not part of this.
Several jobs run at a time, and share the GPU. With NCCL, calls return at once, and ranks run ahead of one
another. The rules were corrected because of what these programs showed: when they ran for the first time,
under a higher load, 10 of 54 verdicts were wrong, and half of the others were `unknown`. Measured by `python
-m tests.corpus --nccl`.
"""

PROGRAMS = """\
## Every program

If there are words after a program's name, it is started with them. Seconds: from the last progress to the
first word, the median of its runs.
"""
