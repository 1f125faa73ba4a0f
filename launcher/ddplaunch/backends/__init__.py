"""Carry a `Rendered` to where it runs, watch it, and bring its logs and evidence back.

The only layer that starts processes and talks to schedulers. `submit` changes nothing in what was rendered:
what `ddplaunch render` showed is what runs. A backend is imported only when a job or a handle names it.
"""
