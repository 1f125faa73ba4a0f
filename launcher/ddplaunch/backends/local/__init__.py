"""Jobs on this machine. Their state is in the user's state folder, and needs nothing that stays running.

`store` knows the folders and the output in them, and `host` the one process that carries a job; `backend`
makes them one Backend. A job goes on when the launcher dies. What became of it is read from the files that it
leaves, and never remembered.
"""
