#!/bin/bash
# ddplaunch: the gate, for any batch script of Slurm.
#
#     #!/bin/bash
#     #SBATCH --nodes=4
#     source /opt/ddplaunch/prologue.sh
#     srun torchrun --nnodes=4 --rdzv-backend=c10d --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" train.py
#
# Every node of the job checks names, ports and paths to the others. Then this sets MASTER_ADDR and MASTER_PORT, and
# NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME if the gate had to set them. If something is wrong, it says what, and the
# script ends with the gate's exit code: 20 if a node or the network is at fault, 30 if the job is.
# The agent is the agent.pyz beside this file, or the file that DDPLAUNCH_AGENT names. DDPLAUNCH_GATE_TIMEOUT: seconds
# for the whole gate, 120 by default.

_ddplaunch_gate() {
    if [ -z "${BASH_VERSION:-}" ]; then
        echo "[ddplaunch] error: this script must be run by bash: begin it with #!/bin/bash" >&2
        return 30
    fi
    local agent here python
    # Nothing is known about PATH yet.
    case ${BASH_SOURCE[0]} in
        */*) here=$(cd -- "${BASH_SOURCE[0]%/*}" && pwd) ;;
        *) here=$PWD ;;
    esac
    agent=${DDPLAUNCH_AGENT:-$here/agent.pyz}
    if [ ! -r "$agent" ]; then
        echo "[ddplaunch] error: there is no agent $agent on $HOSTNAME" >&2
        echo "[ddplaunch] hint: \`slurm/install FOLDER\` puts it beside prologue.sh; source that FOLDER's prologue.sh" >&2
        return 79
    fi
    for python in python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 ''; do
        if [ -z "$python" ]; then
            echo "[ddplaunch] error: no Python 3.9 or newer on PATH on $HOSTNAME" >&2
            return 79
        fi
        "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null && break
    done
    "$python" -I -S "$agent" prologue
}

if _ddplaunch_settled=$(_ddplaunch_gate); then
    eval "$_ddplaunch_settled"
    unset -f _ddplaunch_gate
    unset _ddplaunch_settled
else
    case $- in
        *i*) return ;; # somebody's own shell, started by salloc: it must not close
        *) exit ;;
    esac
fi
