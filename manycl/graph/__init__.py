"""The task graph: launches, copies, fills and host functions, their dependences, and how launches may be divided.

May import analysis and the stages before."""
