"""Files that run inside the user's Python: the supervisor copies them, and the agent never imports them.

It runs in somebody else's program. So: silent, standard library of Python 3.8, no thread and no import before
it is needed, nothing raised into the program, and no torch but the one that the program itself has imported.
Everything ddplaunch does works without it, with less detail.
"""
