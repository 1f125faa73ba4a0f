"""Runs the launch command of one node and watches its ranks: logs, phases, progress, evidence, exit.

One single-threaded loop; signal handlers only record. The supervisor must not judge while there is a hub,
must not slow the ranks, and must leave no process behind, whichever process dies first.
"""
