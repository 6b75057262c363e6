"""Scenes: everything that one run needs, read from manifests and a cluster file, from a trace, or from a snapshot.

Begin with `scene` for what there is in the end, and with `loading` for how files become one.
"""
