"""A folder for PYTHONPATH: each Python process that has it there looks whether MANYCL asks for the stand-in.

May import, of stand_in: its modules."""
