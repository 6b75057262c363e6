"""The binder."""
