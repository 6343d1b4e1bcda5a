"""The demonstration: from memories without an index to measured hybrid recall, step by step.

The steps are the same everywhere: memories are stored, an index is made for them, and recall is measured. Only the
environment differs: a real cluster, where a `MemoryIndex` object and the operator make the index, or this machine,
where the same programs run as processes. `scenario` holds the steps. Every decision (whether a data set is usable,
whether the demo kept its promises, which questions show the difference) is a pure function with its own tests.
"""
