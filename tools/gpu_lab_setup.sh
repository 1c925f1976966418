#!/bin/bash
# gpu_lab_setup.sh FOLDER: fetches the GPU vendors' compilers for tools/gpu_lab.py into FOLDER. Nothing is installed: Debian's
# packages are unpacked there, and no OpenCL runtime is registered. For Debian 12; about 100 MB are fetched.
set -euo pipefail
mkdir -p "$1" && cd "$1"
DEBIAN="clang-19 libclang-cpp19 libllvm19 libclang-common-19-dev libclc-19 libclc-19-dev libz3-4 libedit2 libbsd0 libmd0
  libxml2 libzstd1 libicu72
  intel-opencl-icd libigdgmm12 libigc1 libigdfcl1 libllvm14 libllvmspirvlib14 libopencl-clang14"
PYPI="nvidia-cuda-nvcc nvidia-cuda-nvdisasm"
wanted=$(echo $DEBIAN $PYPI)
[ -f .complete ] && [ "$(cat .complete)" = "$wanted" ] && exit 0
rm -rf root python debs .complete && mkdir root debs
(cd debs && apt-get download -qq $DEBIAN)
for package in debs/*.deb; do dpkg -x "$package" root; done
rm -rf debs
"${PYTHON:-python3}" -m pip --disable-pip-version-check install --quiet ${PIP_ARGS:-} --no-deps --target python $PYPI
chmod +x python/nvidia/*/bin/*
echo "$wanted" > .complete
