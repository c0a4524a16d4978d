"""The processor as a native device: OpenCL C compiled to machine code, run by threads of this process.

May import, of drivers: its modules, native.compiler, opencl."""
