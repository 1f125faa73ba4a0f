"""Text that is safe to print: without escape sequences and known secrets. Nodes and ranks as data in it. Pure.

It knows nothing of jobs, and imports nothing of the agent.
"""
