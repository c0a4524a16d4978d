"""OpenCL's functions: their names, in the order of the table that the handles of the ICD mechanism begin with."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

LETTERS: dict[str, tuple[Any, str]] = {
    "p": (ctypes.c_void_p, "void *"),
    "u": (ctypes.c_uint32, "unsigned"),
    "i": (ctypes.c_int32, "int"),
    "l": (ctypes.c_uint64, "unsigned long long"),
    "z": (ctypes.c_size_t, "size_t"),
    "v": (None, "void"),
}
"""Types of arguments and results, for Python and for C: pointers and handles, cl_uint (and cl_bool), cl_int, cl_ulong
(and bit fields), size_t, nothing. No function of OpenCL takes or gives floating-point numbers."""


class ApiFunction(NamedTuple):
    """``version``: of OpenCL, with which linkers know it; ``result``: ``-`` where this is a place in the table that
    nothing here fills."""

    name: str
    version: str
    result: str
    arguments: str

    @property
    def is_there(self) -> bool:
        return self.result != "-"

    @property
    def callback(self) -> Any:
        """The type of a Python function in its place."""
        return ctypes.CFUNCTYPE(LETTERS[self.result][0], *(LETTERS[letter][0] for letter in self.arguments))


_TABLE = """
clGetPlatformIDs 1.0 i upp
clGetPlatformInfo 1.0 i puzpp
clGetDeviceIDs 1.0 i plupp
clGetDeviceInfo 1.0 i puzpp
clCreateContext 1.0 p pupppp
clCreateContextFromType 1.0 p plppp
clRetainContext 1.0 i p
clReleaseContext 1.0 i p
clGetContextInfo 1.0 i puzpp
clCreateCommandQueue 1.0 p pplp
clRetainCommandQueue 1.0 i p
clReleaseCommandQueue 1.0 i p
clGetCommandQueueInfo 1.0 i puzpp
clSetCommandQueueProperty 1.0 i plup
clCreateBuffer 1.0 p plzpp
clCreateImage2D 1.0 p plpzzzpp
clCreateImage3D 1.0 p plpzzzzzpp
clRetainMemObject 1.0 i p
clReleaseMemObject 1.0 i p
clGetSupportedImageFormats 1.0 i pluupp
clGetMemObjectInfo 1.0 i puzpp
clGetImageInfo 1.0 i puzpp
clCreateSampler 1.0 p puuup
clRetainSampler 1.0 i p
clReleaseSampler 1.0 i p
clGetSamplerInfo 1.0 i puzpp
clCreateProgramWithSource 1.0 p puppp
clCreateProgramWithBinary 1.0 p puppppp
clRetainProgram 1.0 i p
clReleaseProgram 1.0 i p
clBuildProgram 1.0 i pupppp
clUnloadCompiler 1.0 i
clGetProgramInfo 1.0 i puzpp
clGetProgramBuildInfo 1.0 i ppuzpp
clCreateKernel 1.0 p ppp
clCreateKernelsInProgram 1.0 i pupp
clRetainKernel 1.0 i p
clReleaseKernel 1.0 i p
clSetKernelArg 1.0 i puzp
clGetKernelInfo 1.0 i puzpp
clGetKernelWorkGroupInfo 1.0 i ppuzpp
clWaitForEvents 1.0 i up
clGetEventInfo 1.0 i puzpp
clRetainEvent 1.0 i p
clReleaseEvent 1.0 i p
clGetEventProfilingInfo 1.0 i puzpp
clFlush 1.0 i p
clFinish 1.0 i p
clEnqueueReadBuffer 1.0 i ppuzzpupp
clEnqueueWriteBuffer 1.0 i ppuzzpupp
clEnqueueCopyBuffer 1.0 i pppzzzupp
clEnqueueReadImage 1.0 i ppuppzzpupp
clEnqueueWriteImage 1.0 i ppuppzzpupp
clEnqueueCopyImage 1.0 i ppppppupp
clEnqueueCopyImageToBuffer 1.0 i pppppzupp
clEnqueueCopyBufferToImage 1.0 i pppzppupp
clEnqueueMapBuffer 1.0 p ppulzzuppp
clEnqueueMapImage 1.0 p ppulppppuppp
clEnqueueUnmapMemObject 1.0 i pppupp
clEnqueueNDRangeKernel 1.0 i ppupppupp
clEnqueueTask 1.0 i ppupp
clEnqueueNativeKernel 1.0 i pppzuppupp
clEnqueueMarker 1.0 i pp
clEnqueueWaitForEvents 1.0 i pup
clEnqueueBarrier 1.0 i p
clGetExtensionFunctionAddress 1.0 p p
clCreateFromGLBuffer 1.0 p plup
clCreateFromGLTexture2D 1.0 p pluiup
clCreateFromGLTexture3D 1.0 p pluiup
clCreateFromGLRenderbuffer 1.0 p plup
clGetGLObjectInfo 1.0 i ppp
clGetGLTextureInfo 1.0 i puzpp
clEnqueueAcquireGLObjects 1.0 i pupupp
clEnqueueReleaseGLObjects 1.0 i pupupp
clGetGLContextInfoKHR 1.0 i puzpp
clGetDeviceIDsFromD3D10KHR 1.0 -
clCreateFromD3D10BufferKHR 1.0 -
clCreateFromD3D10Texture2DKHR 1.0 -
clCreateFromD3D10Texture3DKHR 1.0 -
clEnqueueAcquireD3D10ObjectsKHR 1.0 -
clEnqueueReleaseD3D10ObjectsKHR 1.0 -
clSetEventCallback 1.1 i pipp
clCreateSubBuffer 1.1 p plupp
clSetMemObjectDestructorCallback 1.1 i ppp
clCreateUserEvent 1.1 p pp
clSetUserEventStatus 1.1 i pi
clEnqueueReadBufferRect 1.1 i ppupppzzzzpupp
clEnqueueWriteBufferRect 1.1 i ppupppzzzzpupp
clEnqueueCopyBufferRect 1.1 i ppppppzzzzupp
clCreateSubDevicesEXT 1.1 i ppupp
clRetainDeviceEXT 1.1 i p
clReleaseDeviceEXT 1.1 i p
clCreateEventFromGLsyncKHR 1.1 p ppp
clCreateSubDevices 1.2 i ppupp
clRetainDevice 1.2 i p
clReleaseDevice 1.2 i p
clCreateImage 1.2 p plpppp
clCreateProgramWithBuiltInKernels 1.2 p puppp
clCompileProgram 1.2 i puppupppp
clLinkProgram 1.2 p puppupppp
clUnloadPlatformCompiler 1.2 i p
clGetKernelArgInfo 1.2 i puuzpp
clEnqueueFillBuffer 1.2 i pppzzzupp
clEnqueueFillImage 1.2 i pppppupp
clEnqueueMigrateMemObjects 1.2 i puplupp
clEnqueueMarkerWithWaitList 1.2 i pupp
clEnqueueBarrierWithWaitList 1.2 i pupp
clGetExtensionFunctionAddressForPlatform 1.2 p pp
clCreateFromGLTexture 1.2 p pluiup
clGetDeviceIDsFromD3D11KHR 1.0 -
clCreateFromD3D11BufferKHR 1.0 -
clCreateFromD3D11Texture2DKHR 1.0 -
clCreateFromD3D11Texture3DKHR 1.0 -
clCreateFromDX9MediaSurfaceKHR 1.0 -
clEnqueueAcquireD3D11ObjectsKHR 1.0 -
clEnqueueReleaseD3D11ObjectsKHR 1.0 -
clGetDeviceIDsFromDX9MediaAdapterKHR 1.0 -
clEnqueueAcquireDX9MediaSurfacesKHR 1.0 -
clEnqueueReleaseDX9MediaSurfacesKHR 1.0 -
clCreateFromEGLImageKHR 1.0 p ppplpp
clEnqueueAcquireEGLObjectsKHR 1.0 i pupupp
clEnqueueReleaseEGLObjectsKHR 1.0 i pupupp
clCreateEventFromEGLSyncKHR 1.0 p pppp
clCreateCommandQueueWithProperties 2.0 p pppp
clCreatePipe 2.0 p pluupp
clGetPipeInfo 2.0 i puzpp
clSVMAlloc 2.0 p plzu
clSVMFree 2.0 v pp
clEnqueueSVMFree 2.0 i pupppupp
clEnqueueSVMMemcpy 2.0 i puppzupp
clEnqueueSVMMemFill 2.0 i pppzzupp
clEnqueueSVMMap 2.0 i pulpzupp
clEnqueueSVMUnmap 2.0 i ppupp
clCreateSamplerWithProperties 2.0 p ppp
clSetKernelArgSVMPointer 2.0 i pup
clSetKernelExecInfo 2.0 i puzp
clGetKernelSubGroupInfoKHR 2.0 i ppuzpzpp
clCloneKernel 2.1 p pp
clCreateProgramWithIL 2.1 p ppzp
clEnqueueSVMMigrateMem 2.1 i pupplupp
clGetDeviceAndHostTimer 2.1 i ppp
clGetHostTimer 2.1 i pp
clGetKernelSubGroupInfo 2.1 i ppuzpzpp
clSetDefaultDeviceCommandQueue 2.1 i ppp
clSetProgramReleaseCallback 2.2 i ppp
clSetProgramSpecializationConstant 2.2 i puzp
clCreateBufferWithProperties 3.0 p pplzpp
clCreateImageWithProperties 3.0 p pplpppp
clSetContextDestructorCallback 3.0 i ppp
"""


def _signature(line: str) -> ApiFunction:
    name, version, result, *arguments = line.split()
    return ApiFunction(name, version, result, arguments[0] if arguments else "")


SIGNATURES = tuple([_signature(line) for line in _TABLE.split("\n") if line])
