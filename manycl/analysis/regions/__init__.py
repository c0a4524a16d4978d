"""Which bytes ranges of work-groups read and write, and whether they may run apart."""
