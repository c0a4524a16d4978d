"""Work stealing: shares of divided launches that move from device to device while they run."""
