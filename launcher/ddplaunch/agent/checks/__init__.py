"""Checks of one node before it meets the others: one check per file.

A check gets a Context and returns a CheckResult: PASS, FAIL with the verdict it leads to, or UNKNOWN. "Cannot
tell" never fails a job. A check must be bounded in time, must not disturb what it looks at, and must not
judge what only a comparison of nodes can tell: it puts facts into its result, and the hub compares them.
"""
