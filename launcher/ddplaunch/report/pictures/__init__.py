"""Pictures of a diagnosis: evidence in, plain SVG out.

Each module draws one picture, and is pure. A picture shows what is recorded and nothing else. If its evidence
is missing, there is no picture. The job's texts get into a drawing only through `svg`, which escapes them.
"""
