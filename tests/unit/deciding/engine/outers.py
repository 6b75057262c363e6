"""Scenarios and outer ones, as a search hands them to plugins."""

import numpy as np

from kai.framework import Batches, Outer, Scenario


def scenario(pod):
    return Scenario(aggressor=0, waiting=(pod,))


def outer(view, pod, victims=()):
    return Outer(
        view=view,
        aggressor=0,
        waiting=(pod,),
        wanted=(1000,),
        recorded=Batches.of(()),
        batches=Batches.of([victims]),
        free=np.zeros(1, np.int64),
        feasible=np.zeros(0, np.int64),
    )
