#!/bin/sh
# Sets up what make needs, or says in one line what to install.
#
#   tools/setup.sh venv DIR                  make a virtual environment with everything pinned in requirements.txt
#   tools/setup.sh check PYTHON [MODULE...]  only check a Python that is there: torch, cmake, the modules
set -eu

stop() {
  echo "xgemm: $*" >&2
  exit 1
}

# What requirements.txt and the like name, into $venv. uv takes 30 s for 6 GB and pip 200 s, but uv does not read pip's
# configuration (an index, certificates): pip follows where uv cannot be had or fails.
install() {
  pip_install="$venv/bin/python -m pip install --quiet --disable-pip-version-check"
  { $pip_install "$(grep '^uv==' requirements.txt)" && "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" "$@"; } ||
    $pip_install "$@" ||
    stop "pip failed (see above); without a network use a Python that has torch: make PYTHON=/path/to/python3 ..."
}

need_compiler() {
  command -v "${CXX:-c++}" >/dev/null 2>&1 || stop "no C++ compiler (${CXX:-c++}): install one, such as 'apt install g++'"
}

case ${1:-} in
  venv)
    venv=$2
    need_compiler
    command -v python3 >/dev/null 2>&1 || stop "no python3: install Python 3.10 or newer, such as 'apt install python3 python3-venv'"
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
      stop "python3 is $(python3 -c 'import platform; print(platform.python_version())'): install Python 3.10 or newer"
    python3 -c 'import ensurepip, venv' 2>/dev/null || stop "Python's venv is missing: 'apt install python3-venv'"
    [ "$(uname -sm)" = "Linux x86_64" ] || stop "builds on Linux x86_64, this is $(uname -sm)"
    echo "Installing PyTorch and the rest of requirements.txt into $venv (6 GB)"
    python3 -m venv "$venv"
    install -r requirements.txt
    case ${XGEMM_CUDA:-ON} in
      OFF | off | 0) ;;
      *)
        if ! "$venv/bin/python" tools/find_nvcc.py >/dev/null 2>&1; then
          echo "No CUDA toolkit of release 12.4 or newer here: installing the compiler from PyPI"
          install -r requirements-cuda.txt
        fi
        ;;
    esac
    ;;
  check)
    python=$2
    shift 2
    need_compiler
    command -v "$python" >/dev/null 2>&1 || stop "no Python at '$python'"
    command -v cmake >/dev/null 2>&1 || stop "no cmake on PATH or beside $python: '$python -m pip install cmake ninja'"
    "$python" - torch "$@" <<'EOF' || exit 1
import importlib.metadata, importlib.util, sys
packages = {"xdist": "pytest-xdist"}  # called otherwise than what they are imported as
missing = [packages.get(name, name) for name in sys.argv[1:] if importlib.util.find_spec(name) is None]
if sys.version_info < (3, 10):
    sys.exit(f"xgemm: {sys.executable} is Python {sys.version.split()[0]}: use 3.10 or newer")
if missing:
    sys.exit(f"xgemm: {sys.executable} lacks {', '.join(missing)}: install with '{sys.executable} -m pip install {' '.join(missing)}'")
version = importlib.metadata.version("torch")
if tuple(int(part) for part in version.split(".")[:2]) < (2, 10):
    sys.exit(f"xgemm: {sys.executable} has torch {version}: install 2.10 or newer, such as torch==2.11.0")
EOF
    ;;
  *)
    stop "usage: tools/setup.sh venv DIR | check PYTHON [MODULE...]"
    ;;
esac
