"""Thirty ways in which people lay out a training, and the files that each writes.

Every layout is a folder of files, the keys of a job file, and what must be found afterwards, byte for byte:
`out/x` and `x`, unless it says otherwise. Its program fails where it does not find what belongs to it. The
tests of each backend run the same table.
"""
