#!/bin/sh
# ddplaunch: digits, 2 nodes x 4, on this machine.
# Start it with `sh run.sh`; everything that happens is written to ./run beside this file.
set -eu
unset CDPATH
here=$(cd -- "$(dirname -- "$0")" && pwd)
if ! command -v python3 >/dev/null; then
    echo "error: no python3 on PATH; the agent needs Python 3.9 or newer" >&2
    exit 79
fi
exec python3 -I -S "$here/agent.pyz" local --folder "$here" "$@"
