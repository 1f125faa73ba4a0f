"""Files that run inside the user's Python: the supervisor copies them, and the agent never imports them.

The hook runs in the user's program. It must print nothing, raise nothing into the program, and start no
thread and import no module before it needs them. It may use the standard library of Python 3.8, and torch
only if the program itself has imported it. Without the hook ddplaunch still works, with less detail.
"""
