"""Scenes: the complete input of one run, read from manifests and a cluster file, from a trace, or from a snapshot.

Begin with `scene` for the values, and with `loading` for how files become a scene.
"""
