"""A flood of requests to a real server, some malformed and some made to exhaust it, while clients hold connections.

`sending` is the flood and `holding` the clients that never finish, both in a process of their own; `probing` measures
what the kubelet and another caller notice; `flood` runs them side by side against one server.
"""
