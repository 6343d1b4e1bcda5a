"""The demonstration: from nothing to answers by meaning, told step by step.

The story is the same wherever it runs: memories exist, an index is brought to them, the answers before and after are
measured. Only the *stand* differs: a real cluster, where a `MemoryIndex` object and the operator do the work, or this
machine, where the same programs run as processes. `story` holds what both share; everything that decides something
(is this data set sound? did it all hold? which questions show the difference?) is a pure function with its own tests.
"""
