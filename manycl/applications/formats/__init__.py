"""The formats of application files: manycl's own specification and PySchedCL's published files.

May import, of applications: its modules."""
