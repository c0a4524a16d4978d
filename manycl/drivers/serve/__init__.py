"""``manycl serve``: processes with open devices that are handed to programs.

May import, of drivers: its modules, worker."""
