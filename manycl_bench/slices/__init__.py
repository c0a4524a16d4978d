"""``manycl bench slices``: samples for predictors of slice sizes, measured on a device.

May import, of manycl_bench: its modules, hopping."""
