"""The content of an outcome as named values: jobs, pods, queues, nodes, GPUs, and the decisions as a plan.

Begin with `overview`. Commands and the pages of the dashboard turn these values into lines, drawings and documents.
"""
