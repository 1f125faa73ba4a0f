"""What the programs share: a note of the moment at which progress stops, data that never comes, work."""

import ctypes
import hashlib
import os
import struct
import time

SECONDS = float(os.environ.get("CORPUS_SECONDS", "30"))  # how long the long steps of healthy jobs take
FOLDER = os.environ.get("CORPUS_SCENE", ".")


def stops():
    """Note that this rank moves no more; the harness counts the seconds to the notice from here."""
    rank = os.environ.get("RANK") or os.environ["OMPI_COMM_WORLD_RANK"]
    with open(os.path.join(FOLDER, f"stopped-{rank}"), "w") as file:
        file.write(repr(time.time()))


def storage():
    """A file on storage that does not answer: whoever opens it waits for ever."""
    path = os.path.join(FOLDER, f"shard-{os.environ['RANK']}")
    if not os.path.exists(path):
        os.mkfifo(path)
    return path


def decode(seconds):
    """Burn CPU for `seconds` in small calls, as a decoder or a data loader does."""
    digest = b"sample"
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        digest = hashlib.sha256(digest * 1000).digest()
    return digest[0]


def dead_server(after_mount=False):
    """Mount a FUSE file system whose server does not answer, or not after the mount; return its folder.

    For root. The mount is seen by this thread alone, and is gone with it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    folder = os.path.join(FOLDER, f"nas-{os.environ['RANK']}")
    os.makedirs(folder, exist_ok=True)
    server = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
    if (
        libc.unshare(0x20000)  # CLONE_NEWNS
        or libc.mount(None, b"/", None, 0x44000, None)  # MS_REC | MS_PRIVATE
        or libc.mount(b"nas:/data", folder.encode(), b"fuse", 0, options)
    ):
        raise OSError(ctypes.get_errno(), "no FUSE file system can be mounted")
    if after_mount:
        unique = struct.unpack_from("=Q", os.read(server, 1 << 20), 8)[0]  # of its FUSE_INIT
        init = struct.pack("=IIIIHHIIHHI28x", 7, 31, 1 << 17, 0, 16, 12, 1 << 17, 1, 32, 0, 0)
        os.write(server, struct.pack("=IiQ", 16 + len(init), 0, unique) + init)
    return folder


def compute(seconds):
    """Use so many seconds of CPU time: on a CPU that is shared it takes longer."""
    digest = b"sample"
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        digest = hashlib.sha256(digest * 1000).digest()
    return digest[0]


def enter_cpu_cgroup():
    """Let the harness' quota of CPU time count for this process from now on."""
    with open(os.path.join(FOLDER, "cpus", "cgroup.procs"), "w") as file:
        file.write(str(os.getpid()))
