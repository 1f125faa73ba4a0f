"""The program that runs on every node: gate, hub, supervisor, evidence, verdict rules.

Standard library only, Python >= 3.9, one file (`agent.pyz`), run by the Python of the training image. The
agent imports nothing of the launcher and never imports torch into its own process: it asks a child process of
the user's Python about torch. All decisions are pure functions of recorded facts, so that the launcher
reaches the same verdict from the same bundle later.
"""
