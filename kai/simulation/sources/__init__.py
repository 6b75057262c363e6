"""Where cases come from, and what is changed of them: files, folders, standard input, snapshots, a running cluster.

Begin with `loading`, which finds out what a path holds. What reads texts is imported where there is a text.
"""
