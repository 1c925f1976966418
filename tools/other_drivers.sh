#!/bin/bash
# other_drivers.sh FOLDER rusticl|pocl cpu|gpu [FAMILY ...]: runs the programs of tools/oclgrind_programs.py on a driver of
# the next Debian, Mesa's rusticl on a CPU or PoCL, with the kernels for CPUs or for GPUs. Prints the programs whose
# results are wrong, except those in float64 on a device without it; the status is 0 if there are none, and if the driver
# did not end the process.
#
# For Debian 12. The driver and all that it needs, its C library too, are unpacked into FOLDER (900 MB); nothing is
# installed. A mount namespace makes FOLDER/system the root for the process, with this tree and its Python in it.
set -euo pipefail
tree=$(realpath "$(dirname "$0")/..")
folder=$(mkdir -p "$1" && realpath "$1") driver=$2 class=$3
shift 3

fetch() {
  rm -rf "$folder"/{apt,system} && mkdir -p "$folder"/apt/{parts,lists/partial,cache/archives/partial} "$folder/system"
  touch "$folder/apt/status"
  sed 's/bookworm/trixie/g' /etc/apt/sources.list.d/debian.sources > "$folder/apt/parts/debian.sources"
  export APT_CONFIG=$folder/apt/conf
  cat > "$APT_CONFIG" << END
Dir::Etc::SourceList "/dev/null";
Dir::Etc::SourceParts "$folder/apt/parts";
Dir::State "$folder/apt";
Dir::State::status "$folder/apt/status";
Dir::Cache "$folder/apt/cache";
END
  apt-get -qq update
  apt-get -qq install --yes --no-install-recommends --download-only coreutils mesa-opencl-icd pocl-opencl-icd
  for package in "$folder"/apt/cache/archives/*.deb; do dpkg -x "$package" "$folder/system"; done
  for name in bin lib lib64 sbin; do ln -sfn usr/$name "$folder/system/$name"; done
  rm -r "$folder/apt"
}
[ -e "$folder/system/usr/bin/env" ] || fetch

python=$tree/.venv/bin/python
prefix=$("$python" -c "import sys; print(sys.base_prefix)")
case $prefix/ in
  /usr/*) echo "this needs a Python outside /usr, which the driver's system replaces" >&2 && exit 2 ;;
esac
vendors=$(TMPDIR=/tmp mktemp -d) && trap 'rm -rf "$vendors"' EXIT
cp "$folder/system/etc/OpenCL/vendors/$driver.icd" "$vendors"
inside='
  root=$1; shift
  for place in /proc /dev /sys /tmp "$1" "$2"; do mkdir -p "$root$place" && mount --rbind "$place" "$root$place"; done
  shift 2
  exec chroot "$root" "$@"'
unshare --map-root-user --mount bash -c "$inside" - "$folder/system" "$tree" "$prefix" \
  env -C "$tree" OCL_ICD_VENDORS="$vendors" RUSTICL_ENABLE=llvmpipe NETCL_DEVICE_CLASS="$class" \
  NETCL_CACHE_DIR="$vendors/cache" NETCL_COMPILE_NOTICE=-1 \
  "$python" tools/oclgrind_programs.py "$@" > "$vendors/results" || status=$?
echo "$driver, kernels for a $class: $(wc -l < "$vendors/results") programs, status ${status:=0}"
! grep -v '""\]$\|has no double precision' "$vendors/results" && exit "$status"
