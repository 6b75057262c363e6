"""The port to a cluster: what services read, write and lead by. Start reading at `port`.

Nothing is imported here: what asks one question needs a client, and none of the objects that a cluster has.
"""
