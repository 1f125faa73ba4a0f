"""Checks of one node by itself: one check per file.

A check gets a Context and returns a CheckResult: PASS, FAIL with its verdict's code, or UNKNOWN. "Cannot
tell" never fails a job. A check must be bounded in time, must not disturb its object, and must not judge what
needs a comparison of nodes: it puts facts into its result, and the hub compares them.
"""
