"""A model of the API server at the level of HTTP; start reading at `server`."""
