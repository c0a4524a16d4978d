"""``manycl serve``: processes with open devices that are handed to programs."""
