"""How sure each verdict is, and why. docs/accuracy.md compares it with what was true in the corpus.

A verdict of the gate that is not named here is sure (1.0): somebody has tried it.
"""

from __future__ import annotations

# --- the gate

LAYER_STOOD_STILL = (
    0.6  # the layer of NCCL in which its log ends; no rank raised, and it may have been done there
)
SIGKILL_AT_IMPORT = 0.8  # only the kernel kills a process that imports torch, and does so for memory
NO_RANKS_STARTED = 0.9  # nothing came for longer than starts take; a very slow start looks the same

# --- ends

KERNEL_KILLED = (
    0.97  # the kernel has counted or logged its kill; which of two ranks it was for, it may not say
)
OWN_END = 0.95  # an end with a reason of its own, before all others by one clock
EXIT_CODE_ALONE = 0.7  # a script may leave by sys.exit for its peer's sake: no exception says why
SHM_NOT_SEEN_FULL = 0.9  # SIGBUS with room in /dev/shm: a file that was cut; or it was full between two looks
SHM_UNKNOWN = 0.8  # SIGBUS, and nobody has looked at /dev/shm
LAUNCHER_ENDED = 0.9  # a launch command ended by itself; its reason is quoted, not understood
STOPPED_FROM_OUTSIDE = 0.9  # a signal that asks for an end reached all ranks, or the launch command
SIGNAL_OF_UNKNOWN_SENDER = 0.5  # it reached one rank, which may have sent it to itself
TOLD_TO_STOP = 0.9  # the scheduler said so
NODE_SILENT = 0.9  # not even its kernel answers, or its connection was closed
NODE_FROZEN = 0.8  # its kernel answers: it may be only very busy
NO_CAUSE_SEEN = 0.4  # ranks ended, each by another's fault, and whose it is was not seen

# --- calls that do not fit one another

NUMBERED_CALLS = 0.97  # the same number of the same group was called differently, and most agree
CALLS_BY_STACKS = 0.8  # the same, by where ranks stand: no number says that it is the same call
CALLS_IN_A_TIE = 0.7  # as many called the one as the other: all are named
CALLS_WITHOUT_CULPRIT = 0.5  # an unseen rank would decide; or the ranks' own words alone say so
OUT_OF_STEP_SINCE = 0.95  # in step before, and by so many calls off ever since
OUT_OF_STEP = 0.85  # off by so many calls as far as records go; its begin is not in them
OUT_OF_STEP_PERHAPS = 0.8  # it may be the call that the others made there from another line
LOOP_LEFT = 0.9  # by the lines where ranks stand; a loop in a library is not seen
LOOP_LEFT_PERHAPS = 0.75  # a call that a rank made more, or less, before what is known would look the same
GROUPS_IN_A_CIRCLE = 0.9  # a circle of blocked ranks cannot open
GROUPS_IN_A_TIE = 0.7  # the same, and neither order is the usual one
NEW_GROUP_LACKS = 0.5  # who is elsewhere may yet come to new_group
MESSAGES_IN_A_CIRCLE = 0.95  # by messages alone, or with one that is known to be left out
MIXED_CIRCLE = 0.8  # with a collective in it, whose counters may lag
MESSAGE_SIZES = 0.95  # both sizes are recorded
NOT_WAITED_FOR = 0.9  # the ring shows no wait; one by another thread is not in it

# --- MPI, whose calls are not counted

MPI_LACKS_RANKS = 0.9  # MPI itself gave the communicator's members
MPI_RIVAL_CALLS = 0.7  # as many are in another call: all are named
MPI_MEMBERS_GUESSED = 0.6  # the communicator was not seen: taken for the whole world
MPI_CIRCLE = 0.9  # a circle of blocked ranks cannot open
MPI_ONE_SIDED = 0.5  # one side left out a message, or the other waits for one too many
OWN_WORDS = 0.9  # MPI itself reports it; which side is wrong, it does not
MPI_RANK_GONE = 0.9  # it is gone, or never came, and others need it

# --- ranks for which others wait

BEHIND_BY_COUNT = 0.95  # counters and stacks agree
BY_STACK_ALONE = 0.8  # no counter says that it is behind
NOBODY_WAITS = 0.7  # nothing moves, but no rank is seen to wait for it
STARVED_MOST = 0.9  # a rank that loops for ever on a full machine looks much alike
LATE_WITH_STACK = 0.95  # it has not called init_process_group, and its stack shows where it is
LATE_UNSEEN = 0.75  # its stack is not known, or its process was not found
CAUGHT_BEFORE = 0.9  # its own exception shortly before it went on alone
THREADS_WAIT = 0.95  # proven by two looks, and others wait for this rank
THREADS_WAIT_ALONE = 0.8  # the same; nobody is seen to wait for it
STOPPED = 0.95  # the kernel says so
WITHOUT_STACK = 0.6  # threads and sockets tell where it is not, hardly where it is
NCCL_CONTRADICTS = 0.5  # the most, where NCCL has this rank as far ahead as any

# --- GPUs

DEVICE_NAMED = 0.95  # NCCL names the ranks, or their groups are bound to one GPU
DEVICE_UNNAMED = 0.8  # NCCL refuses, and does not say which ranks
GPU_EVENT = 0.9  # the kernel logged an event of a GPU at that time
GPU_NOT_STARTED = 0.85  # others' have started; torch's notes may lag
GPU_WITHOUT_EVENT = 0.7  # all have called it and none is done: a network that stands still looks the same

# --- calls of init_process_group

PROVEN = 0.97  # by the calls themselves
LIKELY = 0.85  # by the calls, and by nothing having moved since
CHOSEN_UNTRIED = 0.7  # the script's own choice, which may be right
SIDES_EQUAL = 0.5  # the ranks disagree, and no side is the usual one

# --- no hang, or no cause

SLOW = 0.8  # who waits least is slowest; two may take turns
BROADCASTING = 0.9  # the stacks say so, and bytes move
BEHIND_UNSEEN = 0.3  # counters say that it is behind, and nothing says where
UNKNOWN = 0.0  # no cause is claimed
