"""Text that is safe to show: escape sequences are shown, known secrets are taken out. Pure.

It knows nothing of jobs, and imports nothing of the agent.
"""
