"""Files that run inside the user's Python: the supervisor copies them, and the agent never imports them.

The hook runs in the user's program. So it prints nothing, uses the standard library of Python 3.8, starts no
thread and imports no module before it must, raises nothing into the program, and uses only a torch that the
program itself has imported. ddplaunch works without the hook, with less detail.
"""
