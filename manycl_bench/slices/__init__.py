"""``manycl bench slices``: samples for predictors of slice sizes, measured on a device."""
