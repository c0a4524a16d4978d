"""Work stealing: shares of divided launches that move from device to device while they run.

May import, of run: commands, data, engine, lowering."""
