"""Rules of the run: from the evidence of one moment to one verdict. Pure.

They must not import `hub`, `gate` or `supervisor`, and read no clock.
"""
