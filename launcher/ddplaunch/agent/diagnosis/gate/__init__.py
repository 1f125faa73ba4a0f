"""Rules of the gate: from check-ins and tried paths to one verdict. Pure.

They must not import `hub`, `gate` or `supervisor`, and read no clock.
"""
