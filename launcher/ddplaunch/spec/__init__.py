"""The job file: its models, its loading, the checks across fields, and its JSON Schema.

It reads text and answers with a `JobSpec` or with every problem at once, each with its line and a hint. It
must not know torchrun's flags or a scheduler's, and must not look at this machine.
"""
