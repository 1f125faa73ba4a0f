"""Turns a job and its bundle into terminal text, JSON data or one self-contained HTML file.

`cli` and `api` call it. This layer must not collect evidence, talk to a scheduler, or decide a job's exit
code.
"""
