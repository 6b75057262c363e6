"""Text to JSON, JSON to objects, and back.

`manifest_text` parses the text of files. `structuring` parses the bytes of an API server, drops the data beyond a cap
and makes the objects, with the readers that `converter` assembles.
"""
