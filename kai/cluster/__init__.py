"""The port to a cluster: what services read, write and lead by.

Begin with `port`, which says what there is, and `connect`, which puts it together. The rooms:

    transport/   which API server, who we are to it, HTTP calls and what replies mean
    caching/     the objects of the cluster in memory, kept current by watches
    requesting/  requests carried out, sent in turn, repeated where that is safe
    election/    leader election by a lease

Beside them are `requests` (what may be asked), `work` (plans of several requests, and queues of controllers), `signals`
(what happened) and `threads` (the clock, long batches, computing beside the event loop).
Nothing is imported here: what asks one question needs a client, and none of the objects that a cluster has.
"""
