"""Documents for machines, one class for each kind: the class gives the JSON, its reader and its schema.

Values of ``kai.answers`` enter, and JSON values leave; ``asking`` brings those of a service back. Start reading at
``document``.
"""
