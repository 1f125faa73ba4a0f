"""The commands that do the same plain and under `ddplaunch run`, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PIECES = 3
"""Moments at which output has come, from which on it came little by little."""

STREAMS = ("stdout", "stderr", "files", "left")


@dataclass(frozen=True)
class Row:
    """One command. {port} in it is a free port, {node} the number of the node."""

    name: str
    command: str
    """Words as a shell splits them; the programs lie in the folder in which it runs."""
    stdin: bytes | None = None
    """What is written into a pipe; None: /dev/null."""
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    signals: tuple[tuple[str, str], ...] = ()
    """Each is sent to what the user started once the text is in its stdout; without a text, soon after.
    `-USR1` is sent to its process group.
    """
    ignores: tuple[str, ...] = ()
    """Signals that its shell ignores, as with nohup, or INT and QUIT behind `&` in a script."""
    terminal: bool = False
    typed: tuple[tuple[str, str], ...] = ()
    """As signals, but keys."""
    nodes: int = 1
    job: str = ""
    """What makes a job file that does the same, after its first lines; "": none is tried."""
    compares: tuple[str, ...] = STREAMS
    """Of stdout, stderr, files, left (processes), moves; exit codes and shared memory always."""
    exact: bool = True
    """Streams are equal byte for byte; else line for line without order, times and numbers of processes."""
    volatile: tuple[str, ...] = ()
    """Patterns that differ between two plain runs as well."""
    by_env: bool = False
    """It cannot be started: plain, `env` says so, as a shell would."""
    deepspeed: bool = False
    """It needs DeepSpeed, which is built for it."""
    leaves: tuple[str, ...] = ()
    """`left`: it leaves a process behind, for which nobody waits."""
    whole: bool = False
    """Only `make test-all` runs it: another row covers it for every day, or it takes long."""
    seconds: float = 100.0
    """In which it ends."""

    def __str__(self) -> str:
        return self.name


TORCHRUN = "torchrun --nproc-per-node 2 --master-port {port}"
OF_RANKS = "nproc_per_node: 2\n"
CHANCE = ("MASTER_PORT", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_RUN_ID")
"""Variables of a rank that differ between two plain runs."""
OF_TWO = (
    "torchrun --nnodes 2 --node-rank {node} --nproc-per-node 1 --master-addr 127.0.0.1 --master-port {port}"
)
ALONE = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "{port}",
}

SPEEDS = (r"\d+%\|.*", r"'train_(runtime|\w+_per_second)': '[^']+'")
"""What the Trainer says of its speed, and the bars of what it writes."""

ADDED = {
    "DDPLAUNCH_ATTEMPT": "",
    "DDPLAUNCH_HOOK": "where the hook finds its supervisor",
    "DDPLAUNCH_HUB": "",
    "DDPLAUNCH_JOB": "",
    "DDPLAUNCH_NODE": "",
    "DDPLAUNCH_RESUME_DIR": "where a program may keep checkpoints",
    "DDPLAUNCH_TERMINATION": "",
    "NCCL_RAS_ADDR": "NCCL's status server of this job, not that of another one on the machine",
    "PYTHONPATH": "the hook's folder, before the user's; sys.path has it no more when the program begins",
    "TORCH_FR_BUFFER_SIZE": "torch's flight recorder, which newer versions of torch have on anyway",
}
"""Variables that the command and its ranks get: these and no others. The user's own values win."""

SITE = """import sys
if sys.orig_argv[1:2] == ["facts.py"]:  # not in the Python of ddplaunch itself
    print("mine", sorted(each for each in sys.modules if each.endswith("customize")))
"""

ROWS = (
    # --- exit codes
    Row("exit-0", "true"),
    Row("exit-1", "false", whole=True),
    Row("exit-7", "sh -c 'exit 7'", whole=True),
    Row("exit-255", "sh -c 'exit 255'", whole=True),
    Row("exit-137", "bash -c 'kill -KILL $$'", whole=True),
    Row("exit-139", "bash -c 'ulimit -c 0; kill -SEGV $$'"),
    Row("exit-143", "bash -c 'kill -TERM $$'", whole=True),
    Row("exit-130", "bash -c 'kill -INT $$; sleep 5'", whole=True),
    Row("exit-127", "sh -c 'no-such-program'"),
    Row("no-script", "python no_such_script.py", compares=("stdout", "files", "left")),
    Row("no-shell-script", "bash no_such_script.sh", compares=("stdout", "files", "left"), whole=True),
    Row(
        "no-script-of-ranks",
        f"{TORCHRUN} no_such_script.py",
        compares=("stdout", "files", "left"),
        whole=True,
    ),
    Row("not-found", "no-such-program", by_env=True, compares=("stdout", "files", "left"), whole=True),
    Row(
        "not-executable",
        "./run.sh",
        files={"run.sh": "#!/bin/sh\n"},
        by_env=True,
        compares=("stdout", "files", "left"),
        whole=True,
    ),
    Row(
        "not-executable-of-wrapper",
        "nice -n 1 ./run.sh",
        files={"run.sh": "#!/bin/sh\n"},
        compares=("stdout", "files", "left"),
        whole=True,
    ),
    Row("exit-of-abort", "python -c 'import os; os.abort()'", whole=True),
    # --- shells and what they combine
    Row("and", "bash -c 'echo a && false && echo b'", whole=True),
    Row("or", "bash -c 'python own.py uncaught || echo instead'", whole=True),
    Row("semicolon", "bash -c 'python own.py uncaught; echo next; exit 4'", whole=True),
    Row("set-e", "bash -ec 'echo a; false; echo b'", whole=True),
    Row("set-plus-e", "bash -c 'set +e; python own.py uncaught; python own.py shared'", whole=True),
    Row("pipe", "bash -c 'set -o pipefail; python prints.py both | grep -c out; false | cat'"),
    Row("broken-pipe", "bash -c 'python prints.py endless | head -n 2; echo ${PIPESTATUS[0]}'", whole=True),
    Row("timeout", "timeout 1 python -c 'import time; print(1, flush=True); time.sleep(30)'"),
    Row("timeout-kills", "timeout -s KILL 1 sleep 30", whole=True),
    Row("nohup", "nohup python facts.py signals", whole=True),
    Row("time", "bash -c 'TIMEFORMAT=%0lU; time true'", whole=True),
    Row("xargs", "bash -c 'seq 4 | xargs -n 1 -P 2 sh -c '\"'\"'exit $(($0 == 3))'\"'\"''", whole=True),
    Row("make", "make -s all"),
    Row("make-fails", "make fails", whole=True),
    Row(
        "background-waited",
        "bash -c 'sleep 0.2 & python prints.py unfinished & wait; jobs; echo end'",
        whole=True,
    ),
    Row("trap-exit", "bash -c 'trap \"echo trapped\" EXIT; exit 5'", whole=True),
    Row("here-document", "bash -c 'python - a b <<X\nimport sys; print(sys.argv)\nX'", whole=True),
    # --- signals
    Row("usr1", "python signals.py handlers", signals=(("up", "USR1"), ("got SIGUSR1", "USR2"))),
    Row("usr1-blocked", "python signals.py blocked", signals=(("up", "USR1"),)),
    Row("usr1-without-handler", "python signals.py default", signals=(("up", "USR1"),), whole=True),
    Row("hup", "python signals.py handlers", signals=(("up", "HUP"), ("got SIGHUP", "USR2")), whole=True),
    Row("hup-without-handler", "python signals.py default", signals=(("up", "HUP"),), whole=True),
    Row(
        "winch", "python signals.py handlers", signals=(("up", "WINCH"), ("got SIGWINCH", "USR2")), whole=True
    ),
    Row("alarm", "python signals.py handlers", signals=(("up", "ALRM"), ("got SIGALRM", "USR2")), whole=True),
    Row("term-with-handler", "python signals.py handlers", signals=(("up", "TERM"),)),
    Row("term-without-handler", "python signals.py default", signals=(("up", "TERM"),)),
    Row("int-with-handler", "python signals.py handlers", signals=(("up", "INT"),)),
    Row(
        "int-without-handler",
        "python signals.py default",
        signals=(("up", "INT"),),
        compares=("stdout",),
        whole=True,
    ),
    Row("quit-with-handler", "python signals.py handlers", signals=(("up", "QUIT"),)),
    Row(
        "stop-and-go",
        "python signals.py handlers",
        signals=(("up", "TSTP"), ("", "CONT"), ("got SIGCONT", "USR2")),
    ),
    Row(
        "to-the-group",
        "python group.py",
        signals=(("up", "-USR1"), ("", "USR2"), ("", "-INT"), ("", "-TERM")),
    ),
    # What the caller ignores is ignored, unless the program has a handler of its own.
    Row(
        "quit-ignored",
        "python signals.py handlers",
        ignores=("INT", "QUIT"),
        signals=(("up", "QUIT"),),
        whole=True,
    ),
    Row(
        "hup-ignored",
        "python signals.py handlers",
        ignores=("HUP",),
        signals=(("up", "HUP"), ("got SIGHUP", "USR2")),
        whole=True,
    ),
    Row(
        "int-ignored",
        "python signals.py handlers",
        ignores=("INT", "QUIT"),
        signals=(("up", "INT"),),
        whole=True,
    ),
    Row(
        "term-ignored",
        "python signals.py handlers",
        ignores=("TERM",),
        signals=(("up", "TERM"),),
        whole=True,
    ),
    Row(
        "ignored-without-handler",
        "python signals.py default",
        ignores=("INT", "QUIT", "HUP", "TERM", "USR2"),
        signals=(("up", "INT"), *(("", each) for each in ("QUIT", "HUP", "TERM", "USR2", "USR1"))),
        whole=True,
    ),
    Row("children-ignored", "sh -c 'exit 7'", ignores=("CHLD",)),
    Row("usr1-at-the-end", "python signals.py exit", signals=(("ending", "USR1"),), whole=True),
    Row(
        "usr1-in-training",
        "bash -c 'trap \"echo requeued\" USR1; python ok.py & wait $! ; wait; echo end'",
        env=ALONE,
        signals=(("trained", "USR1"),),
        compares=("files",),
        whole=True,
    ),
    Row(
        "keys-interrupt",
        "python signals.py handlers",
        terminal=True,
        typed=(("up", "\x03"),),
        compares=("files",),
    ),
    Row(
        "keys-quit",
        "python signals.py handlers",
        terminal=True,
        typed=(("up", "\x1c"),),
        compares=("files",),
        whole=True,
    ),
    # --- input
    Row("stdin-pipe", "python prints.py reads", stdin=bytes(range(256)) * 5000),
    Row("stdin-empty", "python prints.py reads", whole=True),
    Row("stdin-file", "bash -c 'python prints.py reads < facts.py'", whole=True),
    Row("stdin-script", "python - one two", stdin=b"import sys\nprint(sys.argv)\n", whole=True),
    Row(
        "stdin-terminal",
        "python -c \"n = input('name? '); open('answer', 'w').write(n)\"",
        terminal=True,
        typed=(("name?", "somebody\r"),),
        compares=("files",),
    ),
    # --- output
    Row("binary", "python prints.py binary"),
    Row("unfinished", "python prints.py unfinished"),
    Row("both-streams", "python prints.py both", whole=True),
    Row("odd-text", "python prints.py odd"),
    Row("looks-like-ours", "python prints.py ours", whole=True),
    Row("long-line", "python prints.py long", whole=True),
    Row("closes-its-streams", "python prints.py nothing", whole=True),
    Row("joined", "bash -c 'python prints.py both > all 2>&1; cat all >&2'", whole=True),
    Row("bar-in-files", "python prints.py bar", compares=("stdout", "stderr", "moves"), whole=True),
    Row("bar-in-a-terminal", "python prints.py bar", terminal=True, compares=("moves",)),
    Row("tqdm-in-a-terminal", "python prints.py tqdm", terminal=True, compares=("moves",), whole=True),
    Row("rich-in-a-terminal", "python prints.py rich", terminal=True, compares=("moves",), whole=True),
    Row("two-megabytes", "python prints.py much 2", whole=True),
    Row("two-hundred-megabytes", "python prints.py much 200", whole=True, seconds=300),
    # --- surroundings
    Row("arguments", "python -c 'import sys; print(sys.argv)' -x --name '' 'a b' '*' '$HOME' -- é \udcff"),
    Row("environment", f"python facts.py env {','.join(ADDED)}"),
    Row(
        "environment-of-a-shell",
        f"bash -c 'env | grep -v -E \"^({'|'.join(ADDED)}|_|TRANSPARENT_MARK)=\"'",
        whole=True,
    ),
    Row("fds", "python facts.py fds"),
    Row("signals-and-masks", "python facts.py signals"),
    Row("ignored-signals", "bash -c 'trap \"\" USR1 HUP; exec python facts.py inherited'"),
    Row("inherited-signals", "python facts.py inherited", whole=True),
    Row("process", "python facts.py process"),
    Row("umask-and-nice", "bash -c 'umask 027; nice -n 3 python facts.py process'", whole=True),
    Row("limits", "bash -c 'ulimit -n 200; python facts.py limits'", whole=True),
    Row("language", "python facts.py language", env={"LC_ALL": "POSIX"}, whole=True),
    Row("streams", "python facts.py streams"),
    Row("in-a-terminal", "python facts.py terminal", terminal=True, compares=("files",), whole=True),
    Row("path", "python facts.py path", env={"PYTHONPATH": "/opt/mine::rel"}, whole=True),
    Row("hooks", "python facts.py hooks"),
    Row("hooks-of-a-rank", "python facts.py hooks", env=ALONE, compares=("stderr", "files")),
    # --- Python's options and hooks
    Row("python-I", "python -I facts.py flags"),
    Row("python-S", "python -S facts.py flags", whole=True),
    Row("python-E-s", "python -E -s facts.py flags", whole=True),
    Row("python-O", "python -O facts.py flags", whole=True),
    Row("python-B-u", "python -B -u facts.py flags", whole=True),
    Row("python-m", "python -m facts flags", whole=True),
    Row("python-W-error", "python -W error -X dev facts.py flags", env=ALONE, whole=True),
    Row(
        "python-importtime",
        "bash -c 'python -X importtime facts.py flags 2> times; grep -c \"json.decoder$\" times; rm times'",
        whole=True,
    ),
    Row(
        "own-sitecustomize",
        "python facts.py hooks",
        env={"PYTHONPATH": "site"},
        files={"site/sitecustomize.py": SITE},
    ),
    Row(
        "own-sitecustomize-fails",
        "python facts.py path",
        env={"PYTHONPATH": "site"},
        files={"site/sitecustomize.py": "raise RuntimeError('in my sitecustomize')\n"},
        compares=("stdout", "files", "left"),
        whole=True,  # ddplaunch's own Python complains as well
    ),
    Row(
        "own-usercustomize",
        "python facts.py hooks",
        env={"PYTHONPATH": "site"},
        files={"site/usercustomize.py": SITE},
        whole=True,
    ),
    Row("own-excepthook", "python own.py excepthook", env=ALONE, whole=True),
    Row("uncaught", "python own.py uncaught", env=ALONE),
    Row("uncaught-in-a-thread", "python own.py thread_uncaught", env=ALONE, whole=True),
    Row(
        "faulthandler", "bash -c 'ulimit -c 0; exec python own.py faults'", env=ALONE, exact=False, whole=True
    ),
    Row("recursion", "python own.py recursion", env=ALONE, whole=True),
    Row("settrace", "python own.py settrace", env=ALONE, whole=True),
    Row("cprofile", "python own.py profile", env=ALONE, whole=True),
    Row("atexit", "python own.py ends", env=ALONE, whole=True),
    Row("os-exit", "python own.py hard", env=ALONE, whole=True),
    Row("fork", "python own.py start fork", env=ALONE, exact=False, whole=True),
    Row("spawn", "python own.py start spawn", env=ALONE, exact=False),
    Row("forkserver", "python own.py start forkserver", env=ALONE, exact=False, whole=True),
    Row("process-pool", "python own.py pool", env=ALONE, whole=True),
    Row("process-pool-breaks", "python own.py broken", env=ALONE, whole=True),
    Row("children", "python own.py children", env=ALONE, whole=True),
    Row("os-fork", "python own.py forks", env=ALONE),
    Row("closes-all-files", "python own.py daemonizes", env=ALONE, whole=True),
    Row("callers-line", "python own.py findcaller", env=ALONE, whole=True),
    Row("shared-memory", "python own.py shared", env=ALONE),
    Row("sets-variables", "python own.py environment", env=ALONE, whole=True),
    Row("own-finder", "python own.py modules", env=ALONE, whole=True),
    Row("resource-warnings", "python -X dev own.py opened", env=ALONE, exact=False, whole=True),
    Row("garbage", "python own.py collected", env=ALONE, whole=True),
    # What it leaves in the background is ended, and named: the one thing that differs by design.
    Row("background", "python own.py background", compares=("stdout", "stderr", "files"), leaves=("left",)),
    # --- programs that look at other programs
    Row("traced", "python traced.py settrace", env=ALONE, exact=False, whole=True),
    Row("traced-calls", "python traced.py setprofile", env=ALONE, exact=False, whole=True),
    Row("monitored", "python traced.py monitoring", env=ALONE, exact=False, whole=True),
    Row("debugger", "python traced.py debugger", env=ALONE, exact=False, whole=True),
    Row(
        "pdb",
        "python -m pdb own.py uncaught",
        stdin=b"break fail\ncontinue\nwhere\np number\nnext\nup\ncontinue\nquit\n",
        env=ALONE,
    ),
    Row("pdb-in-the-program", "python stops.py", stdin=b"where\np 1 + 1\ncontinue\n", env=ALONE, whole=True),
    Row(
        "coverage",
        "bash -c 'coverage run --branch traced.py train; coverage report -m; rm .coverage'",
        env=ALONE,
        exact=False,
        whole=True,
    ),
    Row(
        "coverage-of-children",
        "bash -c 'coverage run -p --concurrency=multiprocessing own.py start spawn; coverage combine -q;"
        " coverage report -m; rm .coverage*'",
        env=ALONE,
        exact=False,
        whole=True,
    ),
    Row(
        "coverage-of-ranks",
        f"bash -c '{TORCHRUN} --no-python coverage run -p ok.py; coverage combine -q; coverage report -m;"
        " rm .coverage*'",
        exact=False,
        whole=True,
    ),
    # --- torch.distributed
    Row("dist-tracebacks", "python dist_facts.py tracebacks", env=ALONE, exact=False, volatile=(r"\]:\d+",)),
    Row("dist-functions", "python dist_facts.py uses", env=ALONE, exact=False, whole=True),
    Row("dist-warnings", "python dist_facts.py warned", env=ALONE, exact=False, whole=True),
    Row("dist-compiled", "python dist_facts.py compiled", env=ALONE, exact=False, whole=True),
    Row("dist-profiled", "python dist_facts.py profiled", env=ALONE, exact=False, whole=True),
    Row("dist-cprofile", "python dist_facts.py called", env=ALONE, exact=False, whole=True),
    Row("sweep-in-one-process", "python sweep.py", exact=False, whole=True),
    Row("loader-raises", "python loads.py", env=ALONE, whole=True),
    Row("torchrun", f"{TORCHRUN} ok.py", job=f"{OF_RANKS}command: [ok.py]\n", exact=False, whole=True),
    Row(
        "environment-of-a-rank",
        f"torchrun --nproc-per-node 1 --master-port {{port}} facts.py env {','.join((*ADDED, *CHANCE))}",
        exact=False,
        compares=("stdout", "files", "left"),
        whole=True,
    ),
    Row(
        "torchrun-fails",
        f"{TORCHRUN} fail.py",
        job=f"{OF_RANKS}command: [fail.py]\n",
        exact=False,
        compares=("stdout", "files", "left"),
        whole=True,
    ),
    Row(
        "restart",
        f"{TORCHRUN} --max-restarts 2 restart.py",
        job=f"{OF_RANKS}command: [restart.py]\nrendezvous: {{max_restarts: 2}}\n",
        exact=False,
        compares=("stdout", "files", "left"),
    ),
    Row(
        "restart-by-variable",
        f"{TORCHRUN} restart.py",
        env={"PET_MAX_RESTARTS": "1"},
        exact=False,
        compares=("stdout", "files", "left"),
        whole=True,
    ),
    Row(
        "restart-c10d",
        "torchrun --nnodes 1 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:{port}"
        " --max-restarts 2 restart.py",
        exact=False,
        compares=("stdout", "files", "left"),
    ),
    Row(
        "restarts-end",
        f"{TORCHRUN} --max-restarts 1 always.py",
        job=f"{OF_RANKS}command: [always.py]\nrendezvous: {{max_restarts: 1}}\n",
        compares=("files", "left"),
        whole=True,
    ),
    Row(
        "torchrun-or-torchrun",
        f"bash -c '{TORCHRUN} fail.py || {TORCHRUN} ok.py'",
        exact=False,
        compares=("stdout", "files", "left"),
    ),
    Row(
        "torchrun-then-torchrun",
        f"bash -c '{TORCHRUN} fail.py; {TORCHRUN} ok.py'",
        exact=False,
        compares=("stdout", "files", "left"),
        whole=True,
    ),
    Row("standalone", "torchrun --standalone --nproc-per-node 1 ok.py", exact=False, whole=True),
    Row("spawn-caught", "python spawn_catch.py", exact=False, volatile=(r"process \d+",), whole=True),
    Row("pytest", "pytest -q -p no:cacheprovider expects.py", exact=False, whole=True),
    Row(
        "accelerate",
        "accelerate launch --cpu --num_processes 2 --main_process_port {port} accelerate_train.py",
        exact=False,
        whole=True,
    ),
    Row("fabric", "python fabric_train.py", exact=False, env={"MASTER_PORT": "{port}"}, whole=True),
    Row("trainer", "python trainer_train.py", exact=False, volatile=SPEEDS, whole=True, seconds=200),
    Row(
        "trainer-of-two",
        f"{TORCHRUN} trainer_train.py",
        exact=False,
        volatile=SPEEDS,
        whole=True,
        seconds=200,
    ),
    Row(
        "deepspeed",
        f"{TORCHRUN} deepspeed_train.py",
        exact=False,
        volatile=(r"\[[\d-]+ [\d:,]+\]",),
        compares=("stdout", "files", "left"),
        deepspeed=True,
        whole=True,
        seconds=200,
    ),
    Row(
        "deepspeed-launcher",
        "bash -c 'echo localhost slots=2 > hosts; deepspeed --hostfile hosts --no_ssh --node_rank 0"
        " --master_addr 127.0.0.1 --master_port {port} --no_local_rank deepspeed_train.py'",
        exact=False,
        compares=("files", "left"),
        deepspeed=True,
        whole=True,
        seconds=200,
    ),
    # --- two nodes: stderr of torchrun is not compared, since one may complain that the other, which has the
    # store, has left torch's exit barrier before it, plain or not
    Row(
        "two-nodes",
        f"{OF_TWO} ok.py",
        nodes=2,
        exact=False,
        compares=("stdout", "files", "left"),
    ),
    Row(
        "two-nodes-one-fails",
        "bash -c 'if [ {node} = 0 ]; then echo well; else sleep 2; exit 7; fi'",
        nodes=2,
        exact=False,
    ),
    Row(
        "two-nodes-one-dies",
        "bash -c 'if [ {node} = 0 ]; then echo well; else sleep 2; kill -KILL $$; fi'",
        nodes=2,
        exact=False,
        whole=True,
    ),
    Row(
        "two-nodes-restart",
        f"{OF_TWO} --max-restarts 2 restart.py",
        nodes=2,
        exact=False,
        compares=("stdout", "files", "left"),
        whole=True,
    ),
    Row(
        "two-nodes-restart-c10d",
        "torchrun --nnodes 2 --nproc-per-node 1 --node-rank {node} --rdzv-id t --rdzv-backend c10d"
        " --rdzv-endpoint 127.0.0.1:{port} --max-restarts 2 restart.py",
        nodes=2,
        exact=False,
        compares=("stdout", "files", "left"),
        whole=True,
    ),
)
