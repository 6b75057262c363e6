"""Text to JSON, JSON to objects, and back.

`manifest_text` parses the text of files, `json_decoding` the bytes of an API server and drops the data beyond a cap.
`structuring` makes the objects, with the readers that `converter` assembles.
"""
