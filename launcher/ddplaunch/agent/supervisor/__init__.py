"""Runs the launch command of one node and watches its ranks: logs, phases, progress, evidence, exit.

One single-threaded loop; signal handlers only record. It must not judge while a hub is there, must not slow
the ranks, and must leave no process behind, whatever dies first.
"""
