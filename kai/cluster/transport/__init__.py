"""The way to an API server: which one, who we are to it, HTTP calls, and what replies mean. Begin with `calls`.

`client` carries calls to a real server over the connections of `connections`; `encoding` makes calls of requests, and
`answers` makes replies of what comes back. `reachability` is one opinion for all on whether the server is there.
"""
