"""The way to an API server: its address, our credentials, HTTP calls and the meaning of replies. Read `calls` first.

`client` sends calls to a real server over the connections of `connections`. `encoding` turns requests into calls, and
`calls` says what answers mean. `reachability` decides for the whole process whether the server is there.
"""
