"""Connects the processes of a job: addresses, authenticated JSON lines, proofs of a path.

It knows neither gate nor run: what the messages mean is for `hub`, `gate` and `supervisor`.
"""
