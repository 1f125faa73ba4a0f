"""Jobs on this machine. Their state is in the user's state folder, and needs nothing that stays running.

`host` is the one process that carries a job; `backend` knows the folders and the output in them, and is the
Backend. A job runs on when the launcher dies; what became of it is read from the files it leaves,
never remembered.
"""
