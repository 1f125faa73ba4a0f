"""Pictures of a diagnosis: evidence in, plain SVG out.

Each module draws one picture, and is pure. A picture shows what is recorded and nothing else; where its
evidence is missing there is none. Texts of the job reach a drawing through `svg` alone, which escapes them.
"""
