#!/bin/bash
# gpu_lab_setup.sh FOLDER [oclgrind]: fetches the GPU vendors' compilers for tools/gpu_lab.py into FOLDER, or Oclgrind for
# tools/oclgrind.py. Nothing is installed: Debian's packages are unpacked there, and no OpenCL runtime is registered. For
# Debian 12; about 100 MB are fetched, or 40.
set -euo pipefail
python=$(realpath -s "$(command -v "${PYTHON:-python3}")")  # a relative path would end with the folder's change
mkdir -p "$1" && cd "$1"
SHARED="libz3-4 libedit2 libbsd0 libmd0 libxml2 libicu72"
if [ "${2:-}" = oclgrind ]; then
  DEBIAN="oclgrind liboclgrind-21.10 libllvm14 libclang-common-14-dev libreadline8 libtinfo6 $SHARED"
  PYPI=
else
  DEBIAN="clang-19 libclang-cpp19 libllvm19 libclang-common-19-dev libclc-19 libclc-19-dev libzstd1 $SHARED
    intel-opencl-icd libigdgmm12 libigc1 libigdfcl1 libllvm14 libllvmspirvlib14 libopencl-clang14"
  PYPI="nvidia-cuda-nvcc nvidia-cuda-nvdisasm"
fi
wanted=$(echo $DEBIAN $PYPI)
[ -f .complete ] && [ "$(cat .complete)" = "$wanted" ] && exit 0
rm -rf root python debs .complete && mkdir root debs
(cd debs && apt-get download -qq $DEBIAN)
for package in debs/*.deb; do dpkg -x "$package" root; done
rm -rf debs
if [ -n "$PYPI" ]; then
  "$python" -m pip --disable-pip-version-check install --quiet ${PIP_ARGS:-} --no-deps --target python $PYPI
  chmod +x python/nvidia/*/bin/*
fi
echo "$wanted" > .complete
