"""Plain Python twins of the kernels, written from the rules rather than from the code.

A twin has its kernel's name. It works on a ``World`` of objects and lists instead of columns, and looks everything up
the long way: ``tests/kernels`` puts both through the same and compares.
"""
