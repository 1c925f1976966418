"""Builds OpenCL programs for another process (csrc/runtime/BuildProcess.h).

``_builder.py LOADER VERSION DEVICE CPU OFFSET``: the platform's version and the device's name must be those of the
other process, which loads the binaries. If it made PoCL compile for another CPU than the one that PoCL found, CPU is
its name, and OFFSET is where in the device object the pointer to the name lies (csrc/runtime/PoclCpu.h); else CPU is
empty. Standard input is a socket. A text on it is its length in 8 bytes, and its bytes. A request is the number of the
options to try, each of them, and the source. The answer is which of them it was built with, the compiler's log, and the
binary, which is empty if it failed. The process ends when the socket is closed, or if there was no request for some
seconds.
"""

import ctypes
import os
import select
import signal
import struct
import sys
from ctypes import (
    POINTER,
    addressof,
    byref,
    c_char_p,
    c_int32,
    c_size_t,
    c_ubyte,
    c_uint32,
    c_uint64,
    c_void_p,
    create_string_buffer,
)

IDLE_SECONDS = 10
PLATFORM_VERSION, DEVICE_NAME, DEVICE_VERSION = 0x0901, 0x102B, 0x102F
BINARY_SIZES, BINARIES, BUILD_LOG = 0x1165, 0x1166, 0x1183
ALL_DEVICES = 0xFFFFFFFF


def receive(size: int) -> bytes:
    """So many bytes of the socket."""
    data = b""
    while len(data) < size:
        part = os.read(0, size - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def receive_text() -> bytes:
    """A text of the socket."""
    return receive(struct.unpack("=Q", receive(8))[0])


def send_text(text: bytes) -> None:
    """Writes a text to the socket."""
    data = memoryview(struct.pack("=Q", len(text)) + text)
    while data:
        data = data[os.write(0, data) :]


class Compiler:
    """The device of this name, and a context of its own."""

    def __init__(self, loader: str, version: str, device: str, cpu: str, offset: str) -> None:
        self.cl = ctypes.CDLL(loader)
        for name in ("clCreateContext", "clCreateProgramWithSource"):
            getattr(self.cl, name).restype = c_void_p
        self.device = next(
            d
            for p in self.listed(self.cl.clGetPlatformIDs)
            if self.text(self.cl.clGetPlatformInfo, p, PLATFORM_VERSION) == version
            for d in self.listed(self.cl.clGetDeviceIDs, p, c_uint64(ALL_DEVICES))
            if self.text(self.cl.clGetDeviceInfo, d, DEVICE_NAME) == device
        )
        if cpu:
            place = self.device.value + int(offset)
            found = c_char_p.from_address(place).value or b""
            version = self.text(self.cl.clGetDeviceInfo, self.device, DEVICE_VERSION)
            if not version.encode().endswith(b"-" + found):
                raise OSError("another driver")
            self.cpu = create_string_buffer(cpu.encode())  # the driver keeps the pointer
            c_void_p.from_address(place).value = addressof(self.cpu)
        self.context = c_void_p(self.cl.clCreateContext(None, 1, byref(self.device), None, None, None))

    def listed(self, function, *arguments) -> list[c_void_p]:
        """The platforms or devices that a function gives."""
        count = c_uint32()
        if function(*arguments, 0, None, byref(count)) != 0:
            return []
        found = (c_void_p * count.value)()
        function(*arguments, count, found, None)
        return [c_void_p(x) for x in found]

    def text(self, function, *arguments) -> str:
        """What a clGet...Info function says."""
        size = c_size_t()
        function(*arguments, 0, None, byref(size))
        buffer = create_string_buffer(size.value + 1)
        function(*arguments, size, buffer, None)
        return buffer.value.decode(errors="replace")

    def build(self, source: bytes, options: bytes) -> tuple[str, bytes]:
        """The log and the binary of a program."""
        text, length, error = c_char_p(source), c_size_t(len(source)), c_int32()
        program = c_void_p(self.cl.clCreateProgramWithSource(self.context, 1, byref(text), byref(length), byref(error)))
        try:
            failed = self.cl.clBuildProgram(program, 1, byref(self.device), options, None, None)
            log = self.text(self.cl.clGetProgramBuildInfo, program, self.device, BUILD_LOG)
            size = c_size_t()
            if (
                failed
                or self.cl.clGetProgramInfo(program, BINARY_SIZES, c_size_t(8), byref(size), None)
                or not size.value
            ):
                return log, b""
            binary = (c_ubyte * size.value)()
            where = POINTER(c_ubyte)(binary)
            failed = self.cl.clGetProgramInfo(program, BINARIES, c_size_t(8), byref(where), None)
            return log, b"" if failed else bytes(binary)
        finally:
            self.cl.clReleaseProgram(program)


def main() -> None:
    """Answers requests until there are no more."""
    if os.fork():
        os._exit(0)
    os.closerange(3, 4096)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the other process
    compiler = Compiler(*sys.argv[1:])
    send_text(b"netcl")
    while select.select([0], [], [], IDLE_SECONDS)[0]:
        options = [receive_text() for _ in range(int(receive_text()))]
        source = receive_text()
        number, log, binary = 0, "", b""
        for number, words in enumerate(options):  # noqa: B007
            log, binary = compiler.build(source, words)
            if binary:
                break
        send_text(str(number).encode())
        send_text(log.encode())
        send_text(binary)


if __name__ == "__main__":
    try:
        main()
    except (EOFError, OSError, StopIteration):  # the other process has ended, or has another driver
        os._exit(1)
    os._exit(0)
