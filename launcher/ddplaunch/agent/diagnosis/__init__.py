"""Verdict rules: pure functions of recorded facts, one small function each, and the catalogue of codes.

A rule gets evidence and returns a Verdict or nothing. Rules must not do I/O, read the clock or the
environment: the launcher runs the same rules on a bundle years later and must get the same answer.
"""
