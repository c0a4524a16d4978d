"""Sessions: opened devices and what lives on them between runs; what a policy is asked; measuring."""
