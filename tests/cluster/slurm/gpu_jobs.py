"""Jobs that ask for GPUs."""

from __future__ import annotations

WITH_GPU = """
mount -t tmpfs tmpfs /mnt
cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty /dev/fd /mnt
for folder in shm pts; do mkdir "/mnt/$folder" && mount --rbind "/dev/$folder" "/mnt/$folder"; done
cp -a /dev/null /mnt/nvidia0
mount --rbind /mnt /dev
umount --lazy /mnt
"""
"""A file is all that tells a machine with GPUs."""
