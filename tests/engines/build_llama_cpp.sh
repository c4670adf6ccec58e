#!/bin/sh
# Builds llama.cpp's programs from the source in llama-cpp-python's sdist, once: build_llama_cpp.sh FOLDER
#
# FOLDER/bin then has llama-server, llama-quantize, llama-bench and llama-tokenize, static, for this machine's CPU, and
# FOLDER/READY names the version. Some ten minutes on two cores. Needs a C++ compiler and cmake.
set -eu

VERSION=0.3.36 # of llama-cpp-python
PROGRAMS="llama-server llama-quantize llama-bench llama-tokenize"

folder=$1
if [ "$(cat "$folder/READY" 2>/dev/null)" = "$VERSION" ]; then
    exit 0
fi
mkdir -p "$folder"
cd "$folder"
source=llama_cpp_python-$VERSION
if [ ! -f "$source.tar.gz" ]; then
    # pip installs what builds it, to read its metadata: from wheels, since cmake's source takes longer than all the rest.
    ${PYTHON:-python3} -m pip download --quiet --no-deps --no-binary llama-cpp-python "llama-cpp-python==$VERSION"
fi
if [ ! -d "$source" ]; then
    tar xzf "$source.tar.gz"
    # GCC 12 does not see that AMX reads the whole configuration of its tiles, and drops what was written to it: SIGILL.
    sed -i 's/^    _tile_loadconfig(&tc);/    __asm__ volatile("" : : "r"(\&tc) : "memory");\n&/' \
        "$source/vendor/llama.cpp/ggml/src/ggml-cpu/amx/mmq.cpp"
fi
generator=
command -v ninja >/dev/null && generator="-G Ninja"
# shellcheck disable=SC2086 # both are lists of words
cmake -S "$source/vendor/llama.cpp" -B build $generator -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
    -DGGML_NATIVE=ON -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF \
    -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_CURL=OFF -DLLAMA_BUILD_NUMBER=0
# shellcheck disable=SC2086
nice -n 19 cmake --build build --target $PROGRAMS --parallel
mkdir -p bin
for program in $PROGRAMS; do cp "build/bin/$program" bin/; done
echo "$VERSION" >READY
