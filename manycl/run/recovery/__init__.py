"""Devices that leave, come, lag, fail or are reserved by others, and runs that go on without them."""
