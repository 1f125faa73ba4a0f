"""The program that runs on every node: gate, hub, supervisor, evidence, verdict rules.

Standard library only, Python >= 3.9, one file (`agent.pyz`), run by whatever Python the training image has.
It imports nothing of the launcher and never imports torch into its own process: what it wants to know of
torch it asks in a child process of the user's Python. Whatever decides is a pure function of recorded
facts, so that the launcher reaches the same verdict from the same bundle later.
"""
