"""torch.distributed with netcl tensors, in two processes."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch.distributed as dist
from torch.testing._internal.common_utils import TestCase, run_tests


class TestDistributed(TestCase):
    def test_registered(self):
        self.assertIn("netcl_gloo", dist.Backend.backend_list)
        self.assertEqual(dist.Backend.default_device_backend_map["netcl"], "netcl_gloo")

    def test_two_processes(self):
        """Every collective, data-parallel and sharded training, SyncBatchNorm: distributed_worker.py."""
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, str(Path(__file__).with_name("distributed_worker.py")), f"{folder}/store"]
            workers = [
                subprocess.Popen(
                    command,
                    env={**os.environ, "RANK": str(rank), "NETCL_CPU_FALLBACK": "error"},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
                for rank in range(2)
            ]
            try:
                outputs = [worker.communicate(timeout=300)[0] for worker in workers]
            finally:
                for worker in workers:
                    worker.kill()
            for worker, output in zip(workers, outputs, strict=True):
                self.assertEqual(worker.returncode, 0, "\n".join(outputs))
                self.assertIn("done", output)


if __name__ == "__main__":
    run_tests()
