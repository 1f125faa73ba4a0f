"""Runs the agent, or prints one sentence that says why this Python cannot.

The image's `python3`, of any version, reads this file first, so Python 2.7 must be able to parse it.
"""

import os
import signal
import sys

if os.getpid() == 1:
    # The kernel drops signals to PID 1 of a container that have no handler: a pod that is deleted at this
    # moment would stay until its grace is over. Later code sets handlers of its own.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(60))
elif signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, lambda *_: os._exit(60))  # else a traceback of the present import


def refuse(reason):  # type: (str) -> None
    """End the process with a sentence."""
    sys.stderr.write(
        "error: ddplaunch's agent cannot run on %s: %s\n\n"
        "hint: use an image with another python3, or name one in the job file: `python: /path/to/python3`\n"
        % (sys.executable or "this Python", reason)
    )
    sys.exit(79)


if sys.version_info < (3, 9):
    refuse("it is Python %d.%d, wanted 3.9 or newer" % sys.version_info[:2])
try:
    import zlib  # noqa: F401 - a job's evidence cannot be packed without it
except ImportError:
    refuse("it lacks the zlib module")

if __name__ == "__main__":
    loader = globals()["__loader__"]
    if hasattr(loader, "archive"):  # this file is in agent.pyz
        import archive  # type: ignore[import-not-found]

        try:
            archive.read(loader.archive, loader.get_data(os.path.join(loader.archive, archive.MEMBER)))
        except OSError:
            refuse("it lacks the lzma module, and there is no xz program")
        sys.meta_path.insert(0, archive.Module)
    from ddplaunch.agent.cli import main
    from ddplaunch.agent.system.processes import forget_coercion

    forget_coercion()
    code = main()
    if hasattr(code, "die"):  # a signal has ended the user's command
        sys.stdout.flush()
        sys.stderr.flush()
        code.die()
    sys.exit(code)
