"""The documents of ``-o json`` as classes, and the JSON Schemas that are made of them."""
