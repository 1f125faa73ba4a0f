"""Writes in many ways: `prints.py KIND`."""

import os
import sys
import time

out, err = sys.stdout.buffer, sys.stderr.buffer
kind = sys.argv[1]
if kind == "binary":
    for _ in range(50):
        out.write(bytes(range(256)) * 16)
        err.write(bytes(range(255, -1, -1)))
elif kind == "unfinished":
    out.write(b"first\nlast line without its end")
    err.write(b"of stderr, too")
elif kind == "both":
    for number in range(200):
        print("out", number)
        print("err", number, file=sys.stderr)
elif kind == "bar":
    for number in range(12):
        sys.stderr.write(f"\rstep {number}")
        sys.stderr.flush()
        time.sleep(0.25)
    print(file=sys.stderr)
elif kind == "tqdm":
    from tqdm import tqdm

    for _ in tqdm(range(12)):
        time.sleep(0.25)
elif kind == "rich":
    from rich.progress import track

    for _ in track(range(12)):
        time.sleep(0.25)
elif kind == "much":
    line = b"x" * 99 + b"\n"
    for _ in range(int(sys.argv[2]) * 100):
        out.write(line * 100)
elif kind == "long":
    out.write(b"y" * (3 << 20) + b"\n")
elif kind == "nothing":
    os.close(1)
    os.close(2)
elif kind == "endless":
    try:
        while True:
            print("y")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(4)
elif kind == "odd":
    out.write("[0/1] é \x1b[31mred\x1b[0m\r\n\0\ttab\n\n\n".encode() + b"\xff\xfe\n")
elif kind == "ours":
    print("ddplaunch_hook is a fine name")
    print("Traceback (most recent call last):\n  no file\nError: none", file=sys.stderr)
elif kind == "reads":
    data = sys.stdin.buffer.read()
    print(len(data), data[:20], data[-20:])
