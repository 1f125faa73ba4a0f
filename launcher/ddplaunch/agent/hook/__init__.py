"""What rides into the user's Python: read from here by the supervisor, never imported by the agent.

It runs in somebody else's program. So: silent, standard library of Python 3.8, no thread and no import before
it is needed, nothing raised into the program, and no torch but the one that the program itself has imported.
Everything ddplaunch does works without it, with less detail.
"""
