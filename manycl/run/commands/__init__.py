"""The command graph: what devices are to do, which bytes move, and what each command waits for. Pure."""
