"""The launch cache: launches, copies and fills like one before, given to a device with nothing looked up again.

May import, of api: its modules, arrays, dispatch.compiled."""
