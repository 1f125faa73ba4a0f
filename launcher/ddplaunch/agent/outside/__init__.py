"""Looks at ranks that ddplaunch did not start, while they hang: by /proc, sockets, py-spy and torch itself.

Nothing is changed in them, and none is stopped. Nothing is sent to them, but to torch's debug server where
the program has started one: it is there to be asked. What cannot be seen so is named as unseen. The evidence
has the form that a supervisor's has, for the same rules.
"""
