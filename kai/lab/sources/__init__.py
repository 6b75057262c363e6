"""Sources of cases: files, folders, standard input, snapshots and a running cluster, with changes to what was read.

Begin with `loading`, which detects the content of a path. Parsers of text are imported only for text.
"""
