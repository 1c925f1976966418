# torch_netcl on PoCL, from the wheel that `make wheel` writes to dist/:
#
#   make wheel && docker build -t torch_netcl . && docker run --rm -it torch_netcl python
#
# For a GPU, give the container its device and driver: --gpus all, or --device /dev/dri with the driver's packages.
FROM python:3.12-slim
# A build of torch without CUDA has a tenth of the size.
ARG TORCH="torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu"
RUN pip install --no-cache-dir ${TORCH}
# PyPI has PoCL for x86-64 only.
RUN [ "$(uname -m)" = x86_64 ] || { apt-get update && apt-get install -y --no-install-recommends pocl-opencl-icd; }
COPY dist/torch_netcl-*.whl /tmp/
RUN pip install --no-cache-dir "$(echo /tmp/torch_netcl-*_"$(uname -m)".whl)[pocl]" && rm /tmp/torch_netcl-*.whl
# Tests every device, and compiles the kernels for this.
RUN python -m torch_netcl --check
