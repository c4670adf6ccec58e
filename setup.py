"""Builds the CPU kernel where there is a C++ compiler; without one midfill installs all the same, and uses torch."""

import os
import shlex
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

KERNEL = Extension(
    "inference.backends.cpu._decode",
    sources=["inference/backends/cpu/kernel/decode.cpp"],
    depends=sorted(map(str, Path("inference/backends/cpu/kernel").glob("*.h"))),
    language="c++",
    extra_compile_args=[
        *("-std=c++17", "-O3", "-g0", "-pthread", "-fvisibility=hidden"),
        "-ffp-contract=off",  # fused where the source says so and nowhere else: the same bits from every instantiation
        *("-Wno-psabi", "-Wno-uninitialized"),  # vectors never cross the ABI; GCC's own headers (bug 105593)
    ],
    extra_link_args=["-pthread"],
    optional=os.environ.get("MIDFILL_KERNEL") != "required",  # a wheel without it would be slow for everyone
)


class BuildLibrary(build_ext):
    """Builds extensions that are loaded through ctypes: libraries, with nothing for Python to import."""

    def get_export_symbols(self, ext: Extension) -> list[str]:
        """What the source exports, and no module's initialisation."""
        return list(ext.export_symbols)

    def get_ext_filename(self, fullname: str) -> str:
        """A name without Python's version, which the library does not depend on."""
        return fullname.replace(".", os.sep) + EXTENSION_SUFFIXES[-1]

    def build_extension(self, ext: Extension) -> None:
        """On Windows by Zig's Clang, since MSVC, which setuptools would call, does not know the vector types of GCC."""
        if sys.platform != "win32":
            super().build_extension(ext)
            return
        library = self.get_ext_fullpath(ext.name)
        self.mkpath(str(Path(library).parent))
        given = os.environ.get("CXX")
        compiler = shlex.split(given) if given else [sys.executable, "-m", "ziglang", "c++"]
        self.spawn([*compiler, *ext.extra_compile_args, *ext.sources, "-shared", "-o", library])


class Wheel(bdist_wheel):
    """A wheel for every Python of one platform."""

    def get_tag(self) -> tuple[str, str, str]:
        """The platform that setuptools names, and any Python 3."""
        return "py3", "none", super().get_tag()[2]


setup(ext_modules=[KERNEL], cmdclass={"build_ext": BuildLibrary, "bdist_wheel": Wheel})
