"""Looks at ranks that ddplaunch did not start, while they hang: by /proc, sockets and py-spy.

Nothing is changed in them, nothing is sent to them, and none is stopped: what cannot be seen so is named as
unseen. The evidence has the form that a supervisor's has, for the same rules.
"""
