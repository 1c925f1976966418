"""Runs Python code in a new process whose `import torch` is already done, since that takes two or three seconds of the
processor, and the tests do it hundreds of times.

A server imports torch without the backend, once for each process of pytest, and is forked for each piece of code. The
child sets the environment, loads the backend as `import torch` does, and ends as any interpreter. With a variable that
torch's import reads (OMP_NUM_THREADS), or with NETCL_TEST_FULL=1, it is a process of its own.
"""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile

FULL = os.environ.get("NETCL_TEST_FULL", "0") != "0"
# Variables that are read after torch's import, or by the server.
LATE = ("NETCL_", "POCL_", "OCL_", "CL_CONFIG_", "PYTHONPATH", "TORCH_DEVICE_BACKEND_AUTOLOAD")
SERVER = """
import gc, os, pickle, socket, sys
server = socket.socket(fileno=int(sys.argv[1]))
import torch
gc.collect()
gc.freeze()  # a collection in a child would copy all of torch's pages
while True:
    message, files, _, _ = socket.recv_fds(server, 1 << 18, 2)
    if not message:
        os._exit(0)
    child = os.fork()
    if child == 0:
        break
    for file in files:
        os.close(file)
    server.send(pickle.dumps(child))
    server.send(pickle.dumps(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
server.close()
for number, file in enumerate(files, 1):
    os.dup2(file, number)
    os.close(file)
code, arguments, environment = pickle.loads(message)
if environment.get("PYTHONPATH") != os.environ.get("PYTHONPATH"):
    sys.path[:0] = environment.get("PYTHONPATH", "").split(os.pathsep)
os.environ.clear()
os.environ.update(environment)
sys.argv = ["-c", *arguments]
if torch._is_device_backend_autoload_enabled():
    torch.__spec__._initializing = True  # as while torch is imported: then a failure is a warning
    torch._import_device_backends()
    torch.__spec__._initializing = False
exec(compile(code, "<string>", "exec"), globals())
"""


class Server:
    """The process that is forked."""

    def __init__(self):
        self.owner = os.getpid()
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", SERVER, str(theirs.fileno())],
                env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip
        atexit.register(self.close)

    def close(self) -> None:
        if os.getpid() == self.owner:
            self.socket.close()
            self.process.wait()

    def run(self, code: str, arguments: tuple[str, ...], env: dict[str, str], timeout: float):
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            self.socket.settimeout(timeout)  # the server may be importing torch, on a busy machine
            socket.send_fds(self.socket, [pickle.dumps((code, arguments, env))], [out.fileno(), err.fileno()])
            child = pickle.loads(self.socket.recv(1000))
            try:
                status = pickle.loads(self.socket.recv(1000))
            except TimeoutError:
                os.kill(child, signal.SIGKILL)
                self.socket.recv(1000)
                raise subprocess.TimeoutExpired(code, timeout) from None
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode())
        return subprocess.CompletedProcess(["python", "-c", code, *arguments], status, *texts)


server: Server | None = None


def python(code: str, *arguments: str, timeout: float = 300, **env: str | None) -> subprocess.CompletedProcess:
    """Runs the code in a new process, with these arguments and variables; None removes one."""
    global server
    late = all(name.startswith(LATE) for name in env)
    # Kernels that are not compiled yet should not change what tests expect on stderr.
    env = {"NETCL_COMPILE_NOTICE": "-1", **os.environ, **env}
    env = {name: value for name, value in env.items() if value is not None}
    if late and not FULL:
        if server is None or server.owner != os.getpid():
            server = Server()
        return server.run(code, arguments, env, timeout)
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout)
