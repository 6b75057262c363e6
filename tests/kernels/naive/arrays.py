"""What `kai.facts.kernels.arrays` says, as Python says it."""


def ascending(keys):
    return sorted(range(len(keys)), key=lambda at: keys[at])


def falling(keys):
    return sorted(keys, reverse=True)
