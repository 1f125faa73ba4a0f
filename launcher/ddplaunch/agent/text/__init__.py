"""Text that is safe to print: no escape sequences, no known secrets; nodes and ranks as data in it. Pure.

It knows nothing of jobs, and imports nothing of the agent.
"""
