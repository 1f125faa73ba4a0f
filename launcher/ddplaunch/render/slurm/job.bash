#{directives}

#{title}
# Start it with `sbatch`. Everything the nodes print comes together in @name@-JOBID.out; the verdict, the evidence
# and what the hub saw stay in the folder @name@-JOBID, both where sbatch was called.

#{settings}

# --- places

attempt=${SLURM_RESTART_COUNT:-0}
folder=$PWD/$name-$SLURM_JOB_ID # what stays
# On every node, for as long as the job runs. In /tmp anybody may make whatever has a name that can be guessed, and
# wait there for what a job writes. The name is short: MPI's TMPDIR lies below it, and a Unix socket's path has 107
# characters at most.
random=$(od -An -N6 -tx1 /dev/urandom | tr -d ' \n')
scratch=/tmp/ddplaunch-$SLURM_JOB_ID-$random

say() { printf '[slurm] %s %s\n' "$(date +%T)" "$*"; }
stop() { # CODE SENTENCE
    say "error: $2"
    exit "$1"
}
alive() { kill -0 "$1" 2>/dev/null; }

[ -n "$SLURM_JOB_ID" ] || stop 30 "this is a batch script: start it with \`sbatch $0\`"
[ -z "$SLURM_HET_SIZE" ] || stop 30 "heterogeneous jobs are not supported: submit it without het groups"
size=${least:+$least to }$nodes
[[ $SLURM_JOB_NUM_NODES -ge ${least:-$nodes} && $SLURM_JOB_NUM_NODES -le $nodes ]] ||
    stop 30 "this file is for $size nodes and Slurm gave $SLURM_JOB_NUM_NODES: change \`nodes\` in the job file"
[ "${#random}" -eq 12 ] || stop 20 "no random name can be made on $SLURMD_NODENAME: is /dev/urandom there?"
if ! mkdir -m 700 "$folder" 2>/dev/null; then
    [ -e "$folder" ] || [ -L "$folder" ] ||
        stop 30 "the folder $folder cannot be made on $SLURMD_NODENAME: submit from one that is shared"
    # An earlier attempt's, or a stranger's trap.
    { [ -O "$folder" ] && [ ! -L "$folder" ] && chmod 700 "$folder"; } ||
        stop 30 "the folder $folder is another user's: submit from a folder that nobody else can write to"
fi
[ ! -e "$folder/run" ] || mv "$folder/run" "$folder/run-$((attempt - 1))"
mkdir "$folder/run" || stop 30 "the folder $folder/run cannot be made on $SLURMD_NODENAME"

unset DDPLAUNCH_RESUME_DIR # of a job in which this one was submitted
if [ -n "$keeps_checkpoints" ]; then
    mkdir -p "$folder/resume" || stop 30 "the folder $folder/resume cannot be made on $SLURMD_NODENAME"
    export DDPLAUNCH_RESUME_DIR=$folder/resume
fi

# --- the agent: a Python to run it, and its files

for python in python3 "$trainer_python" python3.{14..9} ''; do
    [ -n "$python" ] || stop 79 "$SLURMD_NODENAME has no Python 3.9 or newer on its PATH: load one before sbatch"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null && break
done

for file in "${files[@]}"; do
    sed -n "s/^#$file: //p" "$0" | base64 --decode >"$folder/$file" || stop 79 "cannot unpack $file into $folder"
done
# The ranks' working directory: here, if the nodes share this folder, and else in $scratch.
if [ -e "$folder/source.tar" ] && [ ! -e "$folder/work" ]; then
    rm -rf -- "$folder/work.tmp"
    { mkdir "$folder/work.tmp" && tar -xf "$folder/source.tar" -C "$folder/work.tmp" &&
        : >"$folder/work.tmp/.ddplaunch-source" && # what is newer the ranks wrote
        mv "$folder/work.tmp" "$folder/work"; } || stop 20 "the source cannot be unpacked into $folder: is it full?"
fi
export DDPLAUNCH_SHARED=$folder/run/shared-$random # who sees this file sees the folder
: >"$DDPLAUNCH_SHARED"
cat >"$folder/plan.json" <<'PLAN'
#{plan}
PLAN
if [ "$SLURM_JOB_NUM_NODES" -lt "$nodes" ]; then # of a range, Slurm gives what is free
    nodes=$SLURM_JOB_NUM_NODES
    sed -i "s/^  \"nodes\": .*/  \"nodes\": $nodes,/" "$folder/plan.json"
fi

# --- the hub, in the background: here, beside the steps, so that no memory kill of a rank takes it along

mapfile -t names < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
DDPLAUNCH_NAMES=$(IFS=, && echo "${names[*]}")
DDPLAUNCH_KEY=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
DDPLAUNCH_ATTEMPT=$attempt
export DDPLAUNCH_NAMES DDPLAUNCH_KEY DDPLAUNCH_ATTEMPT
(umask 077 && printf %s "$DDPLAUNCH_KEY" >"$folder/run/key")

# Slurm's signals are for this script and for the ranks' supervisors. In sessions of their own, hub and srun do not
# get them a second time.
own=("$python" -I -S "$folder/agent.pyz")
shown='/^-----BEGIN DDPLAUNCH/,/^-----END DDPLAUNCH/d; s/^/[hub] /' # all but the bundle
theirs=(QUIT ABRT USR1 USR2 ALRM XCPU {34..64}) # signals for the ranks
start_hub() { # OPTIONS of its own
    setsid "${own[@]}" hub --folder "$folder" --name "$SLURMD_NODENAME" --die-with-parent $$ \
        ${DDPLAUNCH_GATE_ONLY:+--gate-only} "$@" \
        > >(
            trap '' "${theirs[@]}"
            tee -a "$folder/run/hub.log" | until sed -u "$shown"; do
                sleep 1 # on a full disk a line is lost, and sed ends; the next one may find room
            done
        ) 2>&1 &
    hub=$!
}
start_hub
stopping=''
signalled=''
trap 'signalled=1; "${own[@]}" ask ending "its time limit is near" --folder "$folder" >/dev/null &' URG
# Most signals come to the supervisors, too, which tell the hub; those of `scancel --batch` or `--full` do not.
trap 'signalled=1; stopping=1; (sleep 2; kill "$hub") 2>/dev/null &' TERM INT HUP
trap 'signalled=1' "${theirs[@]}" # of `scancel --full`: the ranks get them by their own steps

join() { # PID: its exit code, whatever signals come in between
    local code=''
    while [ -z "$code" ] || [ -n "$signalled" ]; do
        signalled=''
        wait "$1"
        code=$?
    done
    return "$code"
}

# --- the steps: one task on every node

unset SLURM_EXPORT_ENV # --export=NONE in somebody's settings would keep all of this from the steps
#{container}
step=(setsid srun --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 --mpi=none)
step+=(--kill-on-bad-exit=0 --wait=0) # who ends, and when, is the hub's to say
[ -z "$SLURM_CPUS_PER_TASK" ] || step+=(--cpus-per-task="$SLURM_CPUS_PER_TASK") # not inherited since Slurm 22.05

# Finds in the ranks' folder what was not in the source, like agent/plan/work_folder.py. Without the mark, which
# the ranks may have removed, that is everything.
written='[ -e .ddplaunch-source ] || touch -d @0 .ddplaunch-source
    find . \( -type f -o -type l \) \( -newermt 1980-01-03 -o -cnewer .ddplaunch-source \) \
    ! -path "*/__pycache__/*" ! -path ./.ddplaunch-source'
# What runs on every node: FOLDER VERB and the agent's command line. Slurm signals the task alone, so the shell hands
# each signal on; and it removes the folder, unless the gate has passed and the ranks are to follow.
# shellcheck disable=SC2016
on_node='
    folder=$1 verb=$2
    shift 2
    # Of this user and closed to others, by type and mode of the thing itself, which is no link.
    ours() { case $(stat -c %f:%u "$2") in $1:$(id -u)) ;; *) false ;; esac; }'$first'
    if [ "$verb" = gate ]; then
        ours 8180 "$folder.tar" && mkdir -m 700 "$folder" && tar -xf "$folder.tar" -C "$folder" || {
            echo "error: cannot unpack $folder.tar: is /tmp full?" >&2
            exit 79
        }
        rm -f "$folder.tar"
    fi
    ours "4[15]c0" "$folder" || {
        echo "error: $folder is not what the gate left there" >&2
        exit 79
    }
    for signal in HUP INT QUIT ABRT USR1 USR2 ALRM XCPU CONT WINCH; do
        trap "again=1; kill -s $signal \$agent" $signal
    done
    trap "again=1; ending=1; kill -s TERM \$agent" TERM
    signal=34
    while [ "$signal" -le 64 ]; do
        trap "again=1; kill -$signal \$agent" $signal
        signal=$((signal + 1))
    done
    "$@" "$folder/agent.pyz" "$verb" --folder "$folder" --in-background &
    agent=$!
    again=1
    while [ -n "$again" ]; do
        again=
        wait "$agent"
        code=$?
    done
    [ "$verb$code" != gate0 ] || exit 0
    # By this the hub knows that the lines before it are those of a runtime, whose own exit codes these are.
    case $verb$1$code in gatesh1 | gatesh255) echo "error: container: exit code $code" >&2 ;; esac
    # What this node has judged without a hub goes with the errors to the job folder; then, that nothing is left.
    own="$folder/run/node-$SLURM_NODEID/bundle.zip"
    [ ! -e "$own" ] || base64 "$own" | sed "s/^/ddplaunch-node $SLURM_NODEID: /" >&2
    # What the ranks wrote here, and nowhere else, stays until the batch script has fetched it.
    if [ "$verb" = run ] && [ -d "$folder/work" ]; then
        written=$(cd "$folder/work" || exit; '"$written"' -print -quit 2>/dev/null) || written=unknown
        # A job that is cancelled, or at its limit, gets no step any more in which that could be done. It has
        # half a minute (KillWait), and this step can still print.
        [ -z "$written" ] || {
            [ -n "$ending" ] || {
                echo "ddplaunch-node $SLURM_NODEID: outputs" >&2
                exit "$code"
            }
            (cd "$folder/work" || exit; '"$written"' -print0 |
                { tar --null --no-recursion --files-from=- -cf - || : >"$folder/unread"; } |
                base64 | sed "s/^/ddplaunch-node $SLURM_NODEID: out: /") >&2
            [ ! -e "$folder/unread" ] || exit "$code"
            echo "ddplaunch-node $SLURM_NODEID: out end" >&2
        }
    fi
    rm -rf -- "$folder" "$folder.env"
    echo "ddplaunch-node $SLURM_NODEID: end" >&2
    exit "$code"'
agent=("${inside[@]}" "$agent_python" -I -S)
remove() { # NODES: the files that the gate has left there; one that is silent keeps us no longer
    timeout --kill-after=2 10 "${step[@]}" --nodes=$# --ntasks=$# --nodelist="$(IFS=, && echo "$*")" --overlap \
        rm -rf -- "$scratch" "$scratch.tar" "$scratch.env" >/dev/null 2>&1 ||
        say "the job's files may still be on $*: $scratch"
}

fetch() { # NODE NUMBER: what its ranks wrote where this node does not see it; false: not all of it is here
    local to=$folder/outputs/node-$2
    mkdir -p "$to" || return
    # shellcheck disable=SC2016
    "${step[@]}" --nodes=1 --ntasks=1 --nodelist="$1" --overlap --immediate=10 sh -c '
        cd "$1/work" 2>/dev/null || exec tar --files-from=/dev/null -cf - # it shares the folder, or has ended well
        '"$written"' -print0 | tar --null --no-recursion --files-from=- -cf -' fetch "$scratch" </dev/null |
        tar -xf - -C "$to"
    local codes="${PIPESTATUS[*]}"
    rmdir "$to" 2>/dev/null # it wrote nothing
    [ "$codes" = "0 0" ]
}
unfold() { # what nodes have printed of their ranks' files
    local node to
    while IFS= read -r node; do
        to=$folder/outputs/node-$node
        mkdir -p "$to" && sed -n "s/^ddplaunch-node $node: out: //p" "$folder/run/srun.log" | base64 -d | tar -xf - -C "$to"
        if [ "${PIPESTATUS[*]}" = "0 0 0" ]; then
            say "files that the ranks of ${names[$node]} wrote are in $to"
            sed -i "/^ddplaunch-node $node: out/d" "$folder/run/srun.log"
        else
            say "error: files that ${names[$node]} wrote are only in $folder/run/srun.log, as a tar in base64: is the disk full?"
        fi
    done < <(sed -n 's/^ddplaunch-node \([0-9]*\): out end$/\1/p' "$folder/run/srun.log")
}
fetch_all() { # of the nodes in `left`, 16 at a time; those whose files are not all here go from `left`
    local -A fetches
    for node in "${!left[@]}"; do
        ! grep -qx "ddplaunch-node $node: outputs" "$folder/run/srun.log" ||
            say "${left[node]}: copying files that its ranks wrote from $scratch/work to $folder/outputs/node-$node"
        fetch "${left[node]}" "$node" &
        fetches[$node]=$!
        [ $((${#fetches[@]} % 16)) -ne 0 ] || wait "${fetches[@]}"
    done
    for node in "${!fetches[@]}"; do
        join "${fetches[$node]}" && continue
        say "error: not all files that ${left[node]} wrote were copied: the rest is still there, in $scratch/work"
        unset "left[$node]"
    done
    rmdir "$folder/outputs" 2>/dev/null
}

word=0
hear_end() { # the exit code of the hub, which has ended or is about to
    join "$hub" 2>/dev/null # where bash says which line of this script was killed
    word=$?
    [ "$word" -le 128 ] || say "error: the hub on $SLURMD_NODENAME was killed by signal $((word - 128)): for memory?"
}

last() { # PID of a step: wait for it, but not for nodes that the hub has given up
    while alive "$1" && alive "$hub"; do wait -n "$1" "$hub"; done
    alive "$hub" || [ "$word" -gt 128 ] || hear_end
    # A hub that was killed for good has given up no node: the supervisors watch on, each by itself.
    [ "$word" -le 128 ] || return
    for _ in {1..50}; do
        alive "$1" || return
        sleep 0.1
    done
    # Told to end, srun would wait for those nodes once more; and bash would tell where in this script it was killed.
    { kill -KILL "$1" && wait "$1"; } 2>/dev/null
}

# --- the job's files on every node

bring() { # neither way writes to a file that is there already, or follows a link
    (umask 077 && tar -C "$folder" -cf "$folder/run/job.tar" "${files[@]}" plan.json) || return
    if [ "$nodes" -gt 1 ]; then
        sbcast "$folder/run/job.tar" "$scratch.tar"
    else
        (umask 077 && set -o noclobber && cat "$folder/run/job.tar" >"$scratch.tar")
    fi || return
    [ -z "$outside" ] || "${step[@]}" sh -c "$outside" node "$scratch"
}
said=$(bring 2>&1) ||
    stop 20 "the job's files do not come to all of ${names[*]}: is /tmp full or read-only? ${said//$'\n'/; }"
rm -f "$folder/run/job.tar"

for _ in {1..1200}; do
    if [ -s "$folder/run/hub.address" ] || ! alive "$hub"; then break; fi
    sleep 0.05
done
if [ ! -s "$folder/run/hub.address" ]; then
    remove "${names[@]}"
    stop 79 "the hub did not start on $SLURMD_NODENAME: see $folder/run/hub.log"
fi
DDPLAUNCH_HUB=$(cat "$folder/run/hub.address")
export DDPLAUNCH_HUB

# --- first the gate, then the supervisor with the ranks

"${step[@]}" "${step_options[@]}" --label sh -c "$on_node" node "$scratch" gate "${agent[@]}" \
    >>"$folder/run/gate.log" 2>&1 &
gate=$!
for _ in 1 2 3; do # a hub that was killed with its parent is started again at its port: the gates come back to it
    while alive "$gate" && alive "$hub"; do wait -n "$gate" "$hub"; done
    if alive "$hub" || ! alive "$gate" || [ -n "$stopping" ]; then break; fi
    hear_end
    [ "$word" -gt 128 ] || break
    say "the hub is started again"
    word=0
    address=${DDPLAUNCH_HUB%%,*}
    start_hub --again --port="${address##*:}"
done
last "$gate"
join "$gate"
code=$?
refused=''
[ "$code" -eq 0 ] || refused=1
if [ -z "$refused$DDPLAUNCH_GATE_ONLY$stopping" ]; then
    # On a full disk srun would give up its output for good, cat gives up a piece of it.
    exec {printed}> >(
        trap '' TERM INT HUP "${theirs[@]}"
        until cat 2>/dev/null; do sleep 1; done
    )
    carrier=$!
    exec {errors}> >( # in srun.log the hub reads who has ended before it came
        trap '' TERM INT HUP "${theirs[@]}"
        tee "$folder/run/srun.log" | until sed -u '/^ddplaunch-node /d'; do sleep 1; done >&2
    )
    teller=$!
    "${step[@]}" "${step_options[@]}" "${run_options[@]}" sh -c "$on_node" node "$scratch" run "${agent[@]}" \
        1>&"$printed" 2>&"$errors" &
    run=$!
    exec {printed}>&- {errors}>&-
    last "$run"
    join "$run"
    code=$?
    join "$carrier"
    join "$teller"
fi

left=("${names[@]}")
while IFS= read -r node; do # that has removed its files by itself
    unset "left[$node]"
done < <(cat "$folder"/run/{gate,srun}.log 2>/dev/null | sed -n 's/^\([0-9]*: \)*ddplaunch-node \([0-9]*\): end$/\2/p')
{ # beside the hub's end
    [ ! -e "$folder/run/srun.log" ] || [ ! -e "$folder/source.tar" ] || { unfold; fetch_all; }
    [ "${#left[@]}" -eq 0 ] || remove "${left[@]}"
} &

# --- the end: the hub has the last word

ends_in() { # SECONDS
    for ((wait = 0; wait < 10 * $1; wait++)); do
        alive "$hub" || return 0
        sleep 0.1
    done
    false
}
ends_in 15 || kill "$hub"
ends_in 10 || kill -KILL "$hub" # it, or its parent, was stopped for good
[ "$word" -gt 128 ] || hear_end
without() { [ "$word" -eq 1 ] || [ "$word" -eq 79 ] || [ "$word" -gt 128 ]; }
if without; then # its word: what the nodes have judged, each by itself, is all there is
    for node in "${!names[@]}"; do
        place=$folder/run/node-$node
        mkdir "$place" &&
            sed -n "/: end$/d; /: out/d; s/^ddplaunch-node $node: //p" "$folder/run/srun.log" | base64 -d >"$place/bundle.zip"
    done 2>/dev/null
    "${own[@]}" hub --folder "$folder" --ended "$code"
    word=$?
fi
without || code=$word
wait # for what the hub said to be written, and for files to be removed
if [ -n "$refused" ]; then
    say "what each node said at the gate is in $folder/run/gate.log"
    [ "$word" -eq 20 ] || [ "$word" -eq 30 ] || # else there is no verdict that explains it
        grep -v ': {"unreached":\|ddplaunch-node ' "$folder/run/gate.log" | tail -n 30
fi

[ -n "$comment" ] || "${own[@]}" comment --folder "$folder" # the verdict where squeue and sacct show it
#{warned}
if [[ " $retried " == *" $code "* ]] && [ "$attempt" -lt "$retries" ] && [ -z "$stopping" ]; then
    faulty=$(cat "$folder"/run*/faulty 2>/dev/null | sort -u | paste -sd, -)
    exclude=$exclude${exclude:+${faulty:+,}}$faulty
    [ "$code" -eq 20 ] && why="a node is at fault" || why="the job hung"
#{why}
    say "$why: retry $((attempt + 1)) of $retries${exclude:+, without $exclude}"
    trap '' TERM # the requeue ends this script, and the job must not stay held
    scontrol requeuehold "$SLURM_JOB_ID"
    [ -z "$exclude" ] || scontrol update JobId="$SLURM_JOB_ID" ExcNodeList="$exclude"
    scontrol release "$SLURM_JOB_ID" # Slurm itself waits two minutes before it starts a requeued job
fi
exit "$code"
