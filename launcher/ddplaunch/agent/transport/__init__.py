"""Connects the processes of a job: addresses, authenticated JSON lines, probes of a path.

It knows neither gate nor run: `hub`, `gate` and `supervisor` give the messages their meaning.
"""
