"""Text that is safe to print: without escape sequences and known secrets. Mentions of nodes and ranks. Pure.

It knows nothing of jobs, and imports nothing of the agent.
"""
