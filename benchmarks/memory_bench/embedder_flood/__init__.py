"""Floods an embedder process with hostile requests, and measures how well other callers are served meanwhile.

`sending` sends the requests and `holding` opens connections whose clients never finish; both run in a separate process.
`probing` measures how long the kubelet and another caller wait, and `poisoning` whether a text that the model cannot
embed fails the requests of others. `flood` runs all of these against one server process.
"""
