"""Floods an embedder process with hostile requests and measures how other callers are served meanwhile.

`sending` sends the requests and `holding` opens connections whose clients never finish, both in a process of their own.
`probing` measures how long the kubelet and another caller wait. `flood` runs all three against one server process.
"""
