"""The custom resource definitions of the six kinds, written from their classes."""
