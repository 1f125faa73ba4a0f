"""How sure each verdict is, and why. docs/accuracy.md compares it with what was true in the corpus.

A verdict of the gate that is not listed here is certain (1.0): a node has tried it.
"""

from __future__ import annotations

# --- the gate

LAYER_STOOD_STILL = 0.6  # NCCL's log ends in this layer and no rank raised; the layer may have finished there
SIGKILL_AT_IMPORT = 0.8  # only the kernel kills a process that imports torch, and only for memory
NO_RANKS_STARTED = 0.9  # nothing arrived for longer than a start takes; a very slow start looks the same

# --- ends

KERNEL_KILLED = 0.97  # the kernel counted or logged the kill, but may not say which of two ranks it killed
OWN_END = 0.95  # it ended before all others, for a reason of its own, by the same clock
LEAVING = 0.85  # it has left its process group while others wait there; how it ends is not known yet
RAISED_AND_HELD = 0.9  # it has raised, and what runs since has not ended; a caller may yet catch it
RAISED_BESIDE_ANOTHER = 0.7  # the same, but another rank stands in its own code, and may have led to it
EXIT_CODE_ALONE = 0.7  # a script may call sys.exit because of its peer; no exception says why
SHM_NOT_SEEN_FULL = 0.9  # SIGBUS with room in /dev/shm: a truncated file, or it was full between two looks
SHM_UNKNOWN = 0.8  # SIGBUS, and nobody looked at /dev/shm
LAUNCHER_ENDED = 0.9  # the launch command ended by itself; we quote its reason and do not interpret it
STOPPED_FROM_OUTSIDE = 0.9  # a signal that requests an end reached all ranks, or the launch command
SIGNAL_OF_UNKNOWN_SENDER = 0.5  # it reached one rank, which may have sent it to itself
TOLD_TO_STOP = 0.9  # the scheduler said so
NODE_SILENT = 0.9  # not even its kernel answers, or its connection was closed
NODE_FROZEN = 0.8  # its kernel answers, so it may just be very busy
MISSED_BY_TORCH = 0.9  # monitored_barrier names them; whether they were slow or stuck is not known
NO_CAUSE_SEEN = 0.4  # each rank ended because of another, and nobody saw the first

# --- calls that do not fit one another

NUMBERED_CALLS = 0.97  # ranks called different things under one number of one group, and most ranks agree
CALLS_BY_STACKS = 0.8  # the same, from where ranks stand; no number proves that it is the same call
CALLS_BY_LINES = (
    0.85  # one operation, from lines that differ; a rank's message says that the calls did not fit
)
CALLS_IN_A_TIE = 0.7  # equally many ranks called each; all are named
SIGNALLED_IN_A_TIE = (
    0.85  # the same, and just before, a signal came to all of one side and to none of the other
)
CALLS_WITHOUT_CULPRIT = 0.5  # a rank that was not seen would decide, or only the ranks' own messages say so
OUT_OF_STEP_SINCE = 0.95  # in step before, and off by the same number of calls ever since
OUT_OF_STEP = 0.85  # off by the same number of calls throughout; when that began is not recorded
OUT_OF_STEP_PERHAPS = 0.8  # the others may have made this call too, from another line
LOOP_LEFT = 0.9  # from the lines where ranks stand; a loop inside a library is not seen
LOOP_LEFT_PERHAPS = 0.75  # one call more or less, before the record begins, would look the same
GROUPS_IN_A_CIRCLE = 0.9  # a circle of blocked ranks cannot open
GROUPS_IN_A_TIE = 0.7  # the same, but neither order is the usual one
GROUPS_APART = 0.8  # it left the order of all others first; which order the program wants is not known
NEW_GROUP_LACKS = 0.5  # ranks that are elsewhere may still come to new_group
NEW_GROUP_SKIPPED = 0.9  # all calls of new_group are known, and torch names groups by their number
NEW_GROUP_TIE = 0.7  # the same, and either half may be right
THREADS_CROSS = 0.95  # two calls of one group were open at once, and another rank has them in another order
THREADS_CROSS_UNSEEN = 0.8  # all ranks are in both calls, and no record has their order
MESSAGES_IN_A_CIRCLE = 0.95  # a circle of messages alone, or with one that is known to be missing
MESSAGES_OUT_OF_COUNT = 0.7  # the same lines have met before, and either side may have called too often
FEWER_MESSAGES_THAN_BEFORE = 0.8  # it may be right in its last round, and its peer expect too many
UNANSWERED = 0.8  # it answered this line before; the one that asks may have asked once too often
ASKS_A_BLOCKED_RANK = 0.7  # either may have to change: who asks during a collective, or who answers there
MIXED_CIRCLE = 0.8  # a collective is part of it, and its counters may lag
MESSAGE_SIZES = 0.95  # both sizes are recorded
NOT_WAITED_FOR = 0.9  # the ring shows no wait; a wait by another thread is not in it

# --- MPI, whose calls are not counted

MPI_LACKS_RANKS = 0.9  # MPI itself listed the communicator's members
MPI_RIVAL_CALLS = 0.7  # equally many ranks are in another call; all are named
MPI_MEMBERS_GUESSED = 0.6  # the communicator was not seen; we take it for the whole world
MPI_CIRCLE = 0.9  # a circle of blocked ranks cannot open
MPI_ONE_SIDED = 0.5  # one side skipped a message, or the other waits for one too many
OWN_WORDS = 0.9  # MPI itself reports it, but not which side is wrong
MPI_RANK_GONE = 0.9  # it is gone or never came, and others need it

# --- ranks for which others wait

BEHIND_BY_COUNT = 0.95  # counters and stacks agree
BY_STACK_ALONE = 0.8  # no counter says that it is behind
NOBODY_WAITS = 0.7  # nothing moves, but no rank is seen waiting for it
STARVED_MOST = 0.9  # a rank that loops forever on a full machine looks similar
LATE_WITH_STACK = 0.95  # it has not called init_process_group, and its stack shows where it is
LATE_UNSEEN = 0.75  # its stack is not known, or its process was not found
CAUGHT_BEFORE = 0.9  # it caught an exception shortly before it went on alone
THREADS_WAIT = 0.95  # two looks prove it, and others wait for this rank
THREADS_WAIT_ALONE = 0.8  # the same, but nobody is seen waiting for it
STOPPED = 0.95  # the kernel says so
WITHOUT_STACK = 0.6  # threads and sockets show where it is not, and rarely where it is
NCCL_CONTRADICTS = 0.5  # the most we claim when NCCL has seen this rank get as far as any other
LOCK_AROUND_COLLECTIVE = 0.85  # each thread is at a lock or in a collective; who holds a lock is not seen
LOCK_FILE_LEFT = 0.5  # it waits for a file to be removed; who has left it there is not known
AWAITS_ANOTHER = 0.7  # it stands at a key or file, and who did not provide it, or removed it, is not seen
TO_PROVIDE = 0.7  # who alone does not wait for a key or file; the others may be wrong to wait for it

# --- GPUs

DEVICE_NAMED = 0.95  # NCCL names the ranks, or their groups are bound to one GPU
DEVICE_UNNAMED = 0.8  # NCCL refuses, and does not say which ranks
GPU_EVENT = 0.9  # the kernel logged an event of a GPU at that time
GPU_NOT_STARTED = 0.85  # the other ranks' calls have started; torch's own record may lag
GPU_WITHOUT_EVENT = 0.7  # all have called it and none has finished; a dead network looks the same

# --- calls of init_process_group

PROVEN = 0.97  # the calls themselves prove it
LIKELY = 0.85  # the calls say so, and nothing has moved since
CHOSEN_UNTRIED = 0.7  # the script's own choice, which may be right
SIDES_EQUAL = 0.5  # the ranks disagree, and neither side is the usual one

# --- no hang, or no cause

SLOW = 0.8  # the rank that waits least is the slowest; two ranks may take turns
BROADCASTING = 0.9  # the stacks say so, and bytes move
BEHIND_UNSEEN = 0.3  # counters say that it is behind, and nothing says where it is
UNKNOWN = 0.0  # no cause is claimed
