"""Looks at hanging ranks that ddplaunch did not start: through /proc, sockets, py-spy and torch itself.

It changes nothing in them and stops none. It sends them nothing, except to torch's debug server if the
program has started one, because that is there to be asked. What cannot be seen in this way is named as
unseen. The evidence has the same form as a supervisor's, and the same rules read it.
"""
