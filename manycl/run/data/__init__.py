"""Data: the coherence directory, buffers in memories, pools of memory, pinned and host memory.

May import, of run: engine, lowering, recovery, session."""
