"""The lab: cases out of files, snapshots, traces and clusters; comparisons; and weeks over virtual time.

Files and flags enter; cases, comparisons, results and reports leave. Begin with `request` for an instant, and with
`virtual.running.simulation` for weeks.

    scenarios/  scenario files, in the long and in the short form
    sources/    files, snapshots and running clusters become cases
    comparing/  an outcome beside another outcome, another scheduler, or the expectation
    request     reads a case, applies the command line to it, decides, and compares
    traces/     recorded jobs and nodes in files of several formats
    virtual/    the scheduler on an embedded cluster whose clock jumps from one event to the next
    report/     the page on runs over virtual time

This module imports nothing: some modules are plain values and are used without the code that decides.
"""
