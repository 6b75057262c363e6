"""What an outcome says, as values with names: jobs, pods, queues, nodes, GPUs, and the decisions as a plan.

Begin with `overview`. The commands and the pages of the dashboard make lines, drawings and documents of these values.
"""
