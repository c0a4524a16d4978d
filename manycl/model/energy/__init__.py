"""Energy: what runs draw, by models of devices and links, and by meters.

May import, of model: history."""
