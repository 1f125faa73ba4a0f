"""Checks of one node by itself, in files by subject. `run.CHECKS` is their table.

A check gets a Context and returns a CheckResult: PASS, FAIL with its verdict's code, or UNKNOWN. "Cannot
tell" never fails a job. A check must be bounded in time, must not disturb its object, and must not judge what
needs a comparison of nodes: it puts facts into its result, and the hub compares them.
"""
