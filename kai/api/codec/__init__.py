"""Text to JSON, JSON to objects, and back.

Text of files is read by `manifest_text`, bytes of an API server by `json_decoding`; `pruning` leaves out what is beyond
a cap, and `structuring` makes the object, with the readers that `converter` puts together.
"""
